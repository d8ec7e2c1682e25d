"""What may be said of a kickoff: read when a DAG is parsed, so that nothing else is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping


class KickoffOptions(TypedDict, total=False):
    """
    What a kickoff may carry besides the inputs. The service calls it the same in camel case: ``taskWebhookUrl``.

    ``meta`` is passed to the crew. The addresses are called by the service: after each task, after each step
    of an agent, at the end, and when a task waits for a person. ``webhooks`` says which ``events`` go to which
    ``url``, and is sent as given. ``restore_from_state_id`` is the kickoff id of an earlier run of a flow, with
    whose state the new one begins.
    """

    meta: Mapping[str, Any] | None
    task_webhook_url: str | None
    step_webhook_url: str | None
    crew_webhook_url: str | None
    human_input_webhook_url: str | None
    webhooks: Mapping[str, Any] | None
    restore_from_state_id: Any
