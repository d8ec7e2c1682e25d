"""Options of a kickoff and default limits. DAG files import this, so it imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 24 * 60 * 60.0
MAX_OUTAGE = 600.0
# From connecting to the last byte of an answer.
REQUEST_TIMEOUT = 60.0
# A service may need a moment until it knows an execution that it has just started.
NOT_FOUND_GRACE = 30.0
# A deployment that has been quiet for a while needs a moment, too, until it answers at all.
WAKING_UP = 300.0
# For how long a rejected token may still be replaced in the connection.
TOKEN_PATIENCE = 120.0
# Between two polls, growing with the age of the execution: its end is noticed soon, for its run time.
SHORTEST_INTERVAL = 5.0
LONGEST_INTERVAL = 60.0


OnUncertainKickoff = Literal["fail", "retry"]
ValidateInputs = Literal[True, False, "strict"]
OnInvalidOutput = Literal["fail", "retry"]


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
