"""
What a trigger tells the task that waits for it.

Results and errors travel as text: an event passes through Airflow's own encodings, some of which read a meaning
into keys of an object.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json, TypeAdapter, ValidationError

from airflow_provider_crew.client.errors import CrewError, error_record, recorded_error
from airflow_provider_crew.client.models import Completed, OrNone
from airflow_provider_crew.client.progress import ProgressReport
from airflow_provider_crew.client.watch import Polls, Watch

# What is larger is read from the service by the task, so that it goes through Airflow's database only once.
_LARGEST_RESULT = 64 * 1024
# A larger one would hold up every other trigger for too long, even if it is read in a thread. The task, which has
# a process of its own, then waits in that.
LARGEST_ANSWER = 2 * 1024 * 1024

_RECORD: TypeAdapter[dict[str, Any]] = TypeAdapter(Json[dict[str, Any]])


def _recorded(told: Any) -> CrewError:
    return recorded_error(_RECORD.validate_python(told))


class WatchEnd(BaseModel):
    """
    How a watch ended: with a result, with an error, or with an answer that the task is to read itself.

    ``deadline``: until when to wait. ``completed``: the execution was seen to have completed. ``seen``: the
    service has known it. ``progress``: how the execution was doing before.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    kickoff_id: str = Field(min_length=1)
    deadline: float = 0.0
    result: Json[dict[str, Any]] | None = None
    error: Annotated[CrewError, BeforeValidator(_recorded)] | None = None
    completed: bool = False
    seen: bool = False
    polls: Polls = Polls()
    progress: Annotated[Json[dict[str, Any]] | None, OrNone] = None


def _text(told: Mapping[str, Any]) -> str:
    """
    Return it as JSON, in which nothing stands that Airflow's log page takes for a mark of what it folds.

    Airflow logs each event, with what the crew wrote in it. A mark would hide what the task itself says below.
    """
    return json.dumps(told).replace("::", ":\\u003a").replace("##", "#\\u0023")


def told_completed(completed: Completed, *, with_output: bool) -> dict[str, Any]:
    """Tell that the execution has completed, and with which result, unless the task is to read it itself."""
    # What is certainly too large is not even encoded, which takes a second for many small objects.
    if not with_output or _is_larger((completed.output, completed.output_json, completed.tasks, completed.usage)):
        return {"completed": True}
    result = _text(completed.result())
    return {"completed": True} | ({"result": result} if len(result) <= _LARGEST_RESULT else {})


def _is_larger(value: Any, than: int = _LARGEST_RESULT) -> bool:
    """Whether data is larger as JSON, as far as that is certain at a glance: there is no look at all of it."""
    values = [value]
    while values and than >= 0:
        each = values.pop()
        if isinstance(each, str):
            than -= len(each)
        elif isinstance(each, dict):
            than -= len(each)
            values.extend(each.values())
        elif isinstance(each, list | tuple):
            than -= len(each)
            values.extend(each)
    return than < 0


def told_error(error: CrewError) -> dict[str, Any]:
    """Tell what ended the watch otherwise."""
    return {"error": _text(error_record(error))}


def told_watch(watch: Watch) -> dict[str, Any]:
    """Tell how often the trigger has polled, and whether the service has known the execution."""
    return {"polls": asdict(watch.polls), "seen": watch.memory.seen}


def told_progress(report: ProgressReport, event: Mapping[str, Any], *, with_outputs: bool) -> dict[str, Any]:
    """Tell how the execution was doing, for a task that knows no more; a result lists the tasks by itself."""
    told = report.told()
    if "result" in event:
        told["tasks"] = []
    elif not with_outputs:
        told["tasks"] = [task | {"output": ""} for task in told["tasks"]]
    return {"progress": _text(told)}


def read_event(event: Any) -> WatchEnd | None:
    """Read what was told; None when it does not tell which execution ended, or how."""
    try:
        return WatchEnd.model_validate(event)
    except ValidationError:
        return None
