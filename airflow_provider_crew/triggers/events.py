"""
Events from a trigger to its task.

Results and errors are encoded as strings, because some of Airflow's own encodings interpret the keys of an object.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json, TypeAdapter, ValidationError

from airflow_provider_crew.client.errors import CrewError, error_record, recorded_error
from airflow_provider_crew.client.models import WHEN_USED, Completed, OrNone, Time

# The task reads a larger result from the crew, so that it passes through Airflow's database only once.
_LARGEST_RESULT = 64 * 1024
# A larger response would block other triggers for too long, even if parsed in a thread. The task then resumes and
# polls in its own process.
LARGEST_RESPONSE = 2 * 1024 * 1024
# Seconds between two polls of a running execution whose status is larger. Each starts a worker.
LARGE_STATUS_INTERVAL = 300.0

# XCom key of the time of a deferral, during which marking the task cancels its execution. Airflow deletes the XCom
# when the next attempt starts, and the task empties it when it resumes.
DEFERRAL = "crew_deferral"

# Options of a request under Required Actions.
HAS_ANSWERED = "I have answered, check now"
STOP_WAITING = "Stop waiting"

_RECORD: TypeAdapter[dict[str, Any]] = TypeAdapter(Json[dict[str, Any]])


def _recorded(record: Any) -> CrewError:
    return recorded_error(_RECORD.validate_python(record))


class WatchEnd(BaseModel):
    """
    End of a watch: a result, an error, or a response that the task must read itself.

    ``deadline``: time at which the wait ends. ``too_large``: the response was too large for the triggerer, and the
    execution may be running. ``completed``: a poll saw the execution complete. ``seen``: a poll found the
    execution. ``progress``: that of the last poll. ``memory``: state of the watch, if the task polls again.
    """

    model_config = WHEN_USED | ConfigDict(frozen=True, arbitrary_types_allowed=True)

    kickoff_id: str = Field(min_length=1)
    deadline: Time = 0.0
    too_large: bool = False
    result: Json[dict[str, Any]] | None = None
    error: Annotated[CrewError, BeforeValidator(_recorded)] | None = None
    completed: bool = False
    seen: bool = False
    progress: Annotated[Json[dict[str, Any]] | None, OrNone] = None
    memory: Annotated[Json[dict[str, Any]] | None, OrNone] = None


def told_completed(completed: Completed) -> dict[str, Any]:
    """Return the event data of a completed execution, without the result if the task must read it itself."""
    result = json.dumps(completed.result())
    return {"completed": True} | ({"result": result} if len(result) <= _LARGEST_RESULT else {})


def told_error(error: CrewError) -> dict[str, Any]:
    """Return the event data of an error."""
    return {"error": json.dumps(error_record(error))}


def chosen_option(event: Any) -> str | None:
    """Return the option that a user has chosen under Required Actions, or None for any other event."""
    match event:
        case {"chosen_options": [str(option), *_]}:
            return option
    return None


def user_in(event: Any) -> str:
    """Return the name of the user who has chosen an option."""
    return str((event.get("responded_by_user") or {}).get("name") or "a user")


def read_event(event: Any) -> WatchEnd | None:
    """Read an event. Return None if it names no execution or is malformed."""
    try:
        return WatchEnd.model_validate(event) if event else None
    except ValidationError:
        return None


def lacks_event(next_kwargs: Mapping[str, Any]) -> bool:
    """Whether the task was cleared during its deferral, so that its trigger neither fired nor failed."""
    return not {"event", "error"} & next_kwargs.keys()


def trigger_timed_out(next_kwargs: Mapping[str, Any]) -> bool:
    """Whether Airflow resumed a task because no event came in time."""
    return next_kwargs.get("error") in {"Trigger timeout", "Trigger/execution timeout"}
