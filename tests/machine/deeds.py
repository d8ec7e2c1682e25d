"""What may go wrong, and what people and the crew may do at any time, at a step of a process or after a while."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.local.faults.kinds import AnswerFault, HangFault, HugeFault, ResetFault, TruncateFault
from tests.machine.virtual import Refusal
from tests.machine.world import World

_HEARTBEATS = 600.0
SEAMS = ("files", "inputs", "kickoff", "status", "stop", "get", "set", "delete", "xcom", "success")
FAULTS: dict[str, Callable[[str], Any]] = {
    "refused": Refusal,
    "lost before": lambda on: ResetFault(on=on),
    "lost after": lambda on: ResetFault(on=on, after_taken=True),
    "slow": lambda on: HangFault(on=on, after_taken=True),
    "cut off": lambda on: TruncateFault(on=on),
    "huge": lambda on: HugeFault(on=on, size=3 * 2**20),
    "a page": lambda on: AnswerFault(on=on, status=200, body="<html>Welcome</html>"),
    **{
        f"{status}": partial(lambda status, on: AnswerFault(on=on, status=status), status)
        for status in (401, 403, 422, 429, 500, 503)
    },
    "404 of a gateway": lambda on: AnswerFault(on=on, status=404, body="<html>no backend</html>"),
    "502 after": lambda on: AnswerFault(on=on, status=502, after_taken=True),
    "unknown": lambda on: AnswerFault(on=on, status=404, body={"error": "NOT FOUND", "message": "Unknown."}),
}


# What may happen at any time.


def _suspend(world: World) -> None:
    """Suspend the process until Airflow takes it for lost. It is told to end when it wakes up."""
    world.suspended += _HEARTBEATS
    world.clock.now += _HEARTBEATS
    world.running.lose()


def _away(seconds: float, world: World) -> None:
    world.away_until = world.clock.now + seconds


def _wait(seconds: float, world: World) -> None:
    world.clock.now += seconds


def _refuse(world: World) -> None:
    world.breaks += 1


def _renew(world: World) -> None:
    world.tokens.append(f"organization-token-{len(world.tokens) + 1}")
    world.crew.rotate_token(world.tokens[-1])


def _renew_everywhere(world: World) -> None:
    _renew(world)
    _fix_connection(world)


def _fix_connection(world: World) -> None:
    world.has_connection, world.known_token = True, world.crew.token
    world.connect()


def _disconnect(world: World) -> None:
    world.has_connection = False
    world.connect()


def _on_last(act: Callable[[World, Any], object]) -> Callable[[World], object]:
    def deed(world: World) -> None:
        if world.last and world.knows(world.last):
            act(world, world.last)

    return deed


def _fail(world: World, execution: Any) -> None:
    if not world.is_over(execution):
        execution.scenario = execution.scenario.failing("out of credit")
        execution.finish(world.clock.now)


def _stop(world: World, execution: Any) -> None:
    if not world.is_over(execution):
        execution.revoke(world.clock.now)
        # A stop after the task has asked for one is taken for its own.
        world.facts[execution.kickoff_id].stopped_by_person = execution.kickoff_id not in world.stops


def _approve(world: World, execution: Any) -> None:
    if execution.standing(world.clock.now).waiting:
        world.crew.approve(execution.kickoff_id)


DEEDS: dict[str, Callable[[World], object]] = {
    "the process is killed": lambda world: world.running.kill(),
    "the process is told to end": lambda world: world.running.tell(),
    "a user marks the task": lambda world: world.running.mark(),
    "a user clears the task": lambda world: world.running.clear(),
    "the process is suspended": _suspend,
    "Airflow is away for a minute": partial(_away, 60.0),
    "Airflow is away for long": partial(_away, 900.0),
    "Airflow refuses a request": _refuse,
    "the token is renewed": _renew_everywhere,
    "the token is revoked": _renew,
    "the connection is deleted": _disconnect,
    "the connection is fixed": _fix_connection,
    "the execution ends": _on_last(lambda world, it: it.finish(world.clock.now)),
    "the execution fails": _on_last(_fail),
    "a person stops the execution": _on_last(_stop),
    "a person approves": _on_last(_approve),
    "the crew forgets the execution": _on_last(lambda world, it: world.crew.forget(it.kickoff_id)),
    "the crew knows all executions": lambda world: world.crew.remember(()),
    "the network recovers": lambda world: world.faults.clear(),
    "an hour passes": partial(_wait, 3600.0),
    "nine days pass": partial(_wait, 9 * 86400.0),
}


# What matters most happens more often.
_DEED = st.sampled_from(
    [*DEEDS, *["the process is killed"] * 8, *["a user clears the task", "the process is suspended"] * 2]
)
_SEAM = st.sampled_from([*SEAMS, *["kickoff", "set", "status"] * 3])
_AT_STEPS = st.tuples(
    st.just("step"), st.sampled_from(["before", "after"]), _SEAM, st.sampled_from([1, 1, 1, 2, 3, 4]), _DEED
)
_AT_TIMES = st.tuples(st.just("time"), st.sampled_from([3.0, 15.0, 50.0, 250.0]), _DEED)
_FAULTY = st.tuples(
    st.just("fault"),
    st.sampled_from(["inputs", "kickoff", "kickoff", "status", "status", "stop"]),
    st.sampled_from([*FAULTS]),
    st.sampled_from([1, 1, 3, 100]),
)
COURSES = st.tuples(
    st.just("course"),
    st.sampled_from([0.0, 20.0, 400.0, 5000.0]),
    st.sampled_from([None, None, "out of credit"]),
    st.booleans(),
    st.sampled_from([*[0] * 9, 2_200_000]),
    st.sampled_from(["deployed", "documented"]),
)
PLANS = st.lists(st.one_of(_AT_STEPS, _AT_STEPS, _AT_TIMES, _FAULTY, _FAULTY, COURSES), max_size=4)


def carry_out(world: World, kind: str, *what: Any) -> None:
    """Add a part of a plan."""
    match kind, what:
        case "step", (when, seam, number, deed):
            world.deeds.append([f"{when} {seam}", number, partial(DEEDS[deed], world)])
        case "time", (seconds, deed):
            world.clock.later(seconds, partial(DEEDS[deed], world))
        case "course", (seconds, error, asks, size, dialect):
            world.course(seconds=seconds, error=error, human_input=asks and not error, size=size, dialect=dialect)
        case "fault", (on, fault, times):
            for _ in range(times):
                world.faults.add(FAULTS[fault](on))
