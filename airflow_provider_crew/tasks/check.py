"""What is looked at before a kickoff: nothing of it costs anything, and a mistake that it finds would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenacity

from airflow_provider_crew.service.errors import (
    AnswerTooLarge,
    NotAllowed,
    Refused,
    TransientError,
    UnreadableAnswer,
)
from airflow_provider_crew.service.limits import WAKING_UP
from airflow_provider_crew.service.payload import compare_inputs
from airflow_provider_crew.service.repeating import repeating

if TYPE_CHECKING:
    from airflow_provider_crew.operators.arguments import ValidateInputs
    from airflow_provider_crew.service.models import CrewInputs
    from airflow_provider_crew.service.payload import KickoffRequest
    from airflow_provider_crew.tasks.running import RunningTask


def check_inputs(task: RunningTask, request: KickoffRequest, validate: ValidateInputs) -> None:
    """
    Raise what would keep a kickoff from starting, and warn of what may be wrong.

    The crew is asked which inputs it takes in any case: one that sleeps wakes up by that.
    """
    known = _listed_inputs(task, wanted=bool(validate))
    if known is None or not validate:
        return
    for doubt in compare_inputs(request.inputs, known, strict=validate == "strict"):
        task.log.warning("%s", doubt)


def _listed_inputs(task: RunningTask, *, wanted: bool) -> CrewInputs | None:
    try:
        policy = tenacity.Retrying(**repeating("GET /inputs", wake_up_within=WAKING_UP))
        return policy(task.hook.get_conn().inputs)
    except (NotAllowed, Refused, UnreadableAnswer, AnswerTooLarge) as error:
        if wanted:
            task.log.warning("The inputs are not checked, since the crew does not tell which it takes. %s", error)
    except TransientError as error:
        if wanted or error.may_be_waking_up:
            raise
    return None
