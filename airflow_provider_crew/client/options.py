"""Options of a kickoff and default limits. DAG files import this module, so it imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 24 * 60 * 60.0
MAX_OUTAGE = 600.0
# Seconds to wait for an answer, and to read it.
REQUEST_TIMEOUT = 60.0
# A service may need a moment until it knows an execution that it has just started.
NOT_FOUND_GRACE = 30.0
# A deployment that has been idle for a while needs a moment until it answers at all.
WAKING_UP = 300.0
# Seconds during which a rejected token may still be replaced in the connection.
TOKEN_PATIENCE = 120.0
# Seconds between two polls. The interval grows with the age of the execution.
SHORTEST_INTERVAL = 5.0
LONGEST_INTERVAL = 60.0


OnUncertainKickoff = Literal["fail", "retry"]
ValidateInputs = Literal[True, False, "strict"]
OnInvalidOutput = Literal["fail", "retry"]


class KickoffOptions(TypedDict, total=False):
    """
    Options of a kickoff besides the inputs. The service uses the same names in camel case: ``taskWebhookUrl``.

    ``meta`` is passed to the crew. The service calls the URLs after each task, after each step of an agent, at the
    end, and when a task waits for human input. ``webhooks`` selects the ``events`` to send to a ``url``, and is
    sent as given. ``restore_from_state_id`` is the kickoff ID of an earlier execution of a flow, whose state the
    new one starts with.
    """

    meta: Mapping[str, Any] | None
    task_webhook_url: str | None
    step_webhook_url: str | None
    crew_webhook_url: str | None
    human_input_webhook_url: str | None
    webhooks: Mapping[str, Any] | None
    restore_from_state_id: Any
