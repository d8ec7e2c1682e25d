"""Options of a kickoff and default limits. DAG files import this module, so it imports nothing else."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

TIMEOUT = 24 * 60 * 60.0
MAX_OUTAGE = 600.0
# Seconds to wait for a response, and to read it.
REQUEST_TIMEOUT = 60.0


OnInvalidOutput = Literal["fail", "retry"]
OnResponseTimeout = Literal["leave", "approve", "send_back"]


class Sent(NamedTuple):
    """Field name and required type of an option in the request of a kickoff."""

    name: str
    kind: type


class KickoffOptions(TypedDict, total=False):
    """
    Options of a kickoff besides the inputs. ``None`` leaves an option out.

    :param meta: Any JSON object, passed to the crew.
    :param task_webhook_url: URL that the crew calls after each task of the crew.
    :param step_webhook_url: URL that the crew calls after each step of an agent.
    :param crew_webhook_url: URL that the crew calls at the end of the execution.
    :param human_input_webhook_url: URL that the crew calls when a task of the crew waits for human input.
    :param webhooks: The ``events`` that the crew sends, and the ``url`` that receives them.
    :param restore_from_state_id: Kickoff ID of an earlier execution of a flow. The new one starts with its state.
    """

    meta: Annotated[Mapping[str, Any] | None, Sent("meta", Mapping)]
    task_webhook_url: Annotated[str | None, Sent("taskWebhookUrl", str)]
    step_webhook_url: Annotated[str | None, Sent("stepWebhookUrl", str)]
    crew_webhook_url: Annotated[str | None, Sent("crewWebhookUrl", str)]
    human_input_webhook_url: Annotated[str | None, Sent("humanInputWebhookUrl", str)]
    webhooks: Annotated[Mapping[str, Any] | None, Sent("webhooks", Mapping)]
    # Native template rendering turns an ID that looks like a number into one.
    restore_from_state_id: Annotated[str | int | None, Sent("restoreFromStateId", str)]


# An option without a declaration of how it is sent fails here.
SENT_AS: dict[str, Sent] = {name: hint.__metadata__[0] for name, hint in KickoffOptions.__annotations__.items()}
