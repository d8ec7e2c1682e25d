"""
How old the progress is that triggers push, and what pushing costs: ``python -m benchmarks.freshness 200``.

All triggers run on one event loop and poll a local crew over HTTP. Requests to the supervisor go through Airflow's
own code to a process that stands in for it, and takes as long as a supervisor takes to write an XCom.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from benchmarks.report import Table

_POLL_INTERVAL = 5.0
# Measured with a real supervisor: see the README.
_WRITE = 0.031
_TEXT = """\
{count} triggers on one event loop poll a local crew every {interval:g} s. All of their executions started \
together, and change their task every {step:g} s, at the same moment. The stand-in for the supervisor handles one \
request at a time, and takes {write:g} ms for each. _Delay_: from the poll that saw a change to the XCom. \
_CPU_ is that of the event loop's process in {seconds:g} s, less that of the same time with progress turned off."""
_COLUMNS = ("triggers", "XComs", "delay, median s", "delay, worst s", "CPU per XCom, ms", "share of the time")


@dataclass(frozen=True)
class Plan:
    """One measurement."""

    count: int
    step: float
    seconds: float


def measure(_rounds: int) -> list[Table]:
    """Measure 200 triggers whose executions change once a minute."""
    plan = Plan(200, 60.0, 70.0)
    text = _TEXT.format(**asdict(plan), interval=_POLL_INTERVAL, write=_WRITE * 1000)
    return [Table("Age of the progress in XCom", text, _COLUMNS, [_row(plan)])]


def _row(plan: Plan) -> list[Any]:
    idle, _ = _run(plan, pushes=False)
    busy, delays = _run(plan, pushes=True)
    cost = busy - idle
    median, worst = statistics.median(delays), max(delays)
    share = cost / plan.seconds
    return [plan.count, len(delays), round(median, 2), round(worst, 2), _ms(cost / len(delays)), f"{share:.1%}"]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _run(plan: Plan, *, pushes: bool) -> tuple[float, list[float]]:
    """Return the CPU time of the event loop's process, and the delay of each XCom."""
    context = multiprocessing.get_context("spawn")
    crew, crew_end = context.Pipe()
    serving = context.Process(target=_serve_crew, args=(crew_end, plan), daemon=True)
    serving.start()
    uri, kickoff_ids = crew.recv()
    ours, theirs = socket.socketpair()
    found, found_end = context.Pipe()
    supervising = context.Process(target=_supervise, args=(theirs, found_end), daemon=True)
    supervising.start()
    theirs.close()
    told, told_end = context.Pipe()
    environment = {"AIRFLOW_CONN_CREW_DEFAULT": uri, "AIRFLOW__CREW__PROGRESS_XCOM": str(pushes), "no_proxy": "*"}
    arguments = (ours, told_end, environment, kickoff_ids, plan)
    triggering = context.Process(target=_trigger, args=arguments, daemon=True)
    triggering.start()
    ours.close()
    if not told.poll(120):
        raise RuntimeError("the triggers have not been measured")
    cpu = told.recv()
    triggering.join(10)
    delays = found.recv()
    for process in (triggering, supervising, serving):
        process.kill()
    return cpu, delays


def _serve_crew(told: Any, plan: Plan) -> None:
    from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask

    count = round(3 * plan.seconds / plan.step) + 2
    tasks = tuple(ScenarioTask(name=f"task_{number}", seconds=plan.step) for number in range(count))
    with LocalCrewService(Scenario(inputs=(), tasks=tasks)) as service:
        told.send((service.connection_uri, [service.take({}, None, {}) for _ in range(plan.count)]))
        time.sleep(3600)


def _supervise(requests: socket.socket, found: Any) -> None:
    """Answer requests one after the other, as a supervisor does."""
    import msgspec
    from airflow.sdk.execution_time.comms import _RequestFrame, _ResponseFrame

    stream, decoder, delays = requests.makefile("rb"), msgspec.msgpack.Decoder(_RequestFrame), []
    seen: set[tuple[int, float]] = set()
    while header := stream.read(4):
        frame = decoder.decode(stream.read(int.from_bytes(header, "big")))
        body = frame.body or {}
        if body.get("type") == "SetXCom":
            time.sleep(_WRITE)
            value = body["value"]
            known = json.loads(value) if isinstance(value, str) else value
            change = (body["map_index"], known["since"])
            if change not in seen:
                seen.add(change)
                delays.append(time.time() - known["since"])
        requests.sendall(_ResponseFrame(frame.id).as_bytes())
    found.send(delays)


def _trigger(
    requests: socket.socket, told: Any, environment: dict[str, str], kickoff_ids: list[str], plan: Plan
) -> None:
    os.environ.update(environment)
    told.send(asyncio.run(_measured(requests, kickoff_ids, plan)))


async def _measured(requests: socket.socket, kickoff_ids: list[str], plan: Plan) -> float:
    from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder
    from airflow.sdk.execution_time import task_runner

    from benchmarks.polling import log_as_a_triggerer

    log_as_a_triggerer()
    reader, writer = await asyncio.open_connection(sock=requests)
    comms = TriggerCommsDecoder(socket=requests, async_writer=writer, async_reader=reader)
    task_runner.SUPERVISOR_COMMS = comms  # type: ignore[assignment] # as a triggerer does
    await comms.start_reader()
    running = [asyncio.create_task(_watch(number, each)) for number, each in enumerate(kickoff_ids)]
    await asyncio.sleep(3 * _POLL_INTERVAL)  # imports, and the first polls
    before = _cpu()
    await asyncio.sleep(plan.seconds)
    took = _cpu() - before
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return took


async def _watch(number: int, kickoff_id: str) -> None:
    import greenback

    from airflow_provider_crew.client.watch import WatchRules
    from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

    await greenback.ensure_portal()
    rules = asdict(WatchRules(deadline=time.time() + 3600, poll_interval=_POLL_INTERVAL))
    trigger = CrewExecutionTrigger(kickoff_id, "crew_default", rules=rules)
    names = {"dag_id": "dag", "task_id": "task", "run_id": "run", "map_index": number, "try_number": 1}
    trigger.task_instance = SimpleNamespace(**names)  # type: ignore[assignment]
    async for _ in trigger.run():
        pass


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness")
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--step", type=float, default=20.0, help="seconds of a task of the crew")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to measure")
    arguments = parser.parse_args()
    plan = Plan(arguments.count, arguments.step, arguments.seconds)
    for name, value in zip(_COLUMNS, _row(plan), strict=True):
        sys.stdout.write(f"{name}: {value}\n")


if __name__ == "__main__":
    _main()
