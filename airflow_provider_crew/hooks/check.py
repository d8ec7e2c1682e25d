"""What is looked at before a kickoff: nothing of it costs anything, and a mistake that it finds would have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from airflow_provider_crew.defaults import WAKING_UP
from airflow_provider_crew.service.errors import (
    AnswerTooLarge,
    NotAllowed,
    Refused,
    TransientError,
    UnreadableAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_crew.service.client import CrewClient
    from airflow_provider_crew.service.models import CrewInputs
    from airflow_provider_crew.service.payload import KickoffRequest

ValidateInputs = Literal[True, False, "strict"]


def check_kickoff(
    client: CrewClient, warn: Callable[..., None], request: KickoffRequest, validate: ValidateInputs
) -> None:
    """Raise what would keep a kickoff from starting, and warn of what may be wrong."""
    from airflow_provider_crew.service.payload import compare_inputs

    known = _listed_inputs(client, warn, wanted=bool(validate))
    if known is None or not validate:
        return
    for doubt in compare_inputs(request.inputs, known, strict=validate == "strict"):
        warn("%s", doubt)


def _listed_inputs(client: CrewClient, warn: Callable[..., None], *, wanted: bool) -> CrewInputs | None:
    """Ask the crew, which may have to wake up for that; None when it does not tell."""
    try:
        return client.inputs(wake_up_within=WAKING_UP)
    except (NotAllowed, Refused, UnreadableAnswer, AnswerTooLarge) as error:
        if wanted:
            warn("The inputs are not checked, since the crew does not tell which it takes. %s", error)
    except TransientError as error:
        if wanted or error.may_be_waking_up:
            raise
    return None
