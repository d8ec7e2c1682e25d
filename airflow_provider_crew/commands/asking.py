"""Ask a crew one thing, and tell what came of it: to people, to scripts, and as an exit code."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_provider_crew.commands.exit_codes import ExitCode
from airflow_provider_crew.compat import broken_source_of, reads_connections_as_commands_do
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.service import errors
from airflow_provider_crew.service.client import CrewClient
from airflow_provider_crew.service.errors import Cost
from airflow_provider_crew.service.models import Completed, CrewInputs, Execution, Failed, Paused
from airflow_provider_crew.service.progress import NOWHERE, where
from airflow_provider_crew.service.result_words import in_all, wrote
from airflow_provider_crew.service.text import one_line, size
from airflow_provider_crew.service.watch_words import after, describe_progress, execution_failed

_NAME = 100

# The first that fits.
_CODES: tuple[tuple[type[errors.CrewError], ExitCode], ...] = (
    (errors.ExecutionFailed, ExitCode.FAILED),
    (errors.ExecutionNotFound, ExitCode.UNKNOWN),
    (errors.TransientError, ExitCode.NO_ANSWER),
    (errors.CallError, ExitCode.REFUSED),
)
_STATES = {ExitCode.FAILED: "failed", ExitCode.UNKNOWN: "unknown"}

Rows = list[tuple[str, str]]


class Told(NamedTuple):
    """What is told: ``data`` to scripts, and ``rows`` to people, a label and a text each."""

    code: ExitCode
    data: dict[str, Any]
    rows: Rows

    def about(self, **facts: str | None) -> "Told":
        """Return the same, and what it is about."""
        known = [(name.replace("_", " ").capitalize(), fact) for name, fact in facts.items() if fact]
        return Told(self.code, {**facts, **self.data}, [*self.rows, *known])


def ask_inputs(conn_id: str) -> Told:
    """Ask which inputs a crew expects."""
    hook = _hook(conn_id)
    try:
        told = _expecting(_client(hook).inputs())
    except errors.CrewError as error:
        told = _without_answer(error, {"inputs": None})
    return told.about(connection=conn_id, address=_address(hook))


def ask_status(conn_id: str, kickoff_id: str) -> Told:
    """Ask how an execution stands."""
    hook = _hook(conn_id)
    try:
        told = _standing(_client(hook).status(kickoff_id))
    except errors.CrewError as error:  # nobody has said how it stands
        told = _without_answer(error.replace(cost=Cost.UNKNOWN), _progress())
    return told.about(kickoff_id=kickoff_id, connection=conn_id, address=_address(hook))


def _hook(conn_id: str) -> CrewHook:
    reads_connections_as_commands_do()
    return CrewHook(conn_id)


def _client(hook: CrewHook) -> CrewClient:
    """Return the client, told apart from a connection that is there, and cannot be read here."""
    try:
        return hook.get_conn()
    except (errors.InvalidSettings, errors.Unreachable):
        if broken := broken_source_of(hook.crew_conn_id):
            raise errors.Unreachable(
                f"Connection {hook.crew_conn_id!r} is unreadable here: {broken}.",
                cost=Cost.NONE,
                next_step="Run this where Airflow can read the connection, or set "
                f"AIRFLOW_CONN_{hook.crew_conn_id.upper()}.",
                sent=False,
                lacks_connection=True,
            ) from None
        raise


def _address(hook: CrewHook) -> str | None:
    """Return where the crew is, if its connection has been read."""
    connection = vars(hook).get("connection")
    return connection.settings.address if connection else None


def _expecting(listed: CrewInputs) -> Told:
    names = [
        f"{one_line(name, _NAME)} (optional)" if name in listed.optional else one_line(name, _NAME)
        for name in listed.names
    ]
    nothing = dict.fromkeys(("event", "error", "cost", "next_step"))
    data = {"inputs": [each.model_dump() for each in listed.inputs], **nothing}
    return Told(ExitCode.ANSWERED, data, [("Inputs", "\n".join(names) or "no inputs")])


def _standing(execution: Execution) -> Told:
    if isinstance(execution, Failed):
        told = _without_answer(execution_failed(execution, ""), _progress())
        return told._replace(rows=[*told.rows, *_spent(execution.model_dump())])
    if isinstance(execution, Completed):
        result = execution.result()
        tasks = "\n".join(wrote(result))
        output = f"{size(execution.output)}: --json prints all of it, as result"
        rows = [("Tasks", tasks), *_spent(result), ("Output", output)]
        data = _progress(state="completed", result=result)
        return _told(
            ExitCode.ANSWERED,
            errors.CrewError(
                f"Execution {execution.kickoff_id} completed{after(execution)}.",
                cost=Cost.ENDED,
                next_step="If no task has returned its result, CrewExecutionSensor with this kickoff ID does.",
            ),
            data | {"error": None},
            rows,
        )
    doing = describe_progress(execution)
    data = _progress(state=execution.status, doing=doing, **where(execution))
    if isinstance(execution, Paused):
        code, event = ExitCode.PAUSED, f"Execution {execution.kickoff_id} waits for human input."
        step = "Answer what the crew asks in its dashboard. Do not start another execution."
    else:
        code, event = ExitCode.GOING_ON, f"Execution {execution.kickoff_id} is running."
        step = "Let its task wait, or wait with CrewExecutionSensor. Do not start another execution."
    said = errors.CrewError(event, cost=Cost.RUNNING, next_step=step)
    return _told(code, said, data | {"error": None}, [("Doing", doing)])


def _progress(**known: Any) -> dict[str, Any]:
    """Return what is told of an execution, under the names that it has in XCom crew_progress; None: not known."""
    return {"state": None, "doing": None, **NOWHERE, "result": None} | known


def _spent(result: Mapping[str, Any]) -> Rows:
    return [("Spent", "\n".join(in_all(result)))]


def _without_answer(error: errors.CrewError, data: dict[str, Any]) -> Told:
    lacks_connection = isinstance(error, errors.InvalidSettings) or getattr(error, "lacks_connection", False)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.CONNECTION)
    code = ExitCode.CONNECTION if lacks_connection else code
    state = {"state": _STATES[code]} if code in _STATES else {}
    return _told(code, error, {**data, **state, "error": error.error}, [])


def _told(code: ExitCode, said: errors.CrewError, data: dict[str, Any], rows: Rows) -> Told:
    facts = {"event": said.event, "cost": said.cost.value, "next_step": said.next_step}
    lines = [("Event", said.event), ("Cost", said.cost.sentence), ("Next", said.next_step)]
    return Told(code, {**data, **facts}, [*lines, *rows])
