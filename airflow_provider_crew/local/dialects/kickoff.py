"""What a kickoff sends, as models for the description of the service and for its own use."""

from typing import Any

from pydantic import BaseModel, Field, StrictBool


class Authentication(BaseModel):
    """How the receiver of events knows who sends them."""

    strategy: str
    token: str


class EventStream(BaseModel):
    """Which events to send while the execution goes on, and where to."""

    events: list[str]
    url: str
    realtime: StrictBool = False
    authentication: Authentication | None = None


class KickoffRequest(BaseModel):
    """What a kickoff sends."""

    inputs: dict[str, Any]
    meta: dict[str, Any] | None = None
    task_webhook: str | None = Field(default=None, alias="taskWebhookUrl")
    step_webhook: str | None = Field(default=None, alias="stepWebhookUrl")
    crew_webhook: str | None = Field(default=None, alias="crewWebhookUrl")
    human_input_webhook: str | None = Field(default=None, alias="humanInputWebhookUrl")
    event_stream: EventStream | None = Field(default=None, alias="webhooks")
    restored_from: str | None = Field(default=None, alias="restoreFromStateId")

    def webhooks(self) -> dict[str, str]:
        """Return the callback addresses given, by their name in the request."""
        addresses = {"task_webhook", "step_webhook", "crew_webhook", "human_input_webhook"}
        return self.model_dump(by_alias=True, exclude_none=True, include=addresses)

    def events(self) -> dict[str, Any] | None:
        """Return what was said about events, as it was sent."""
        return self.event_stream.model_dump(exclude_unset=True) if self.event_stream else None
