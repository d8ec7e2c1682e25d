"""Models of requests, for the OpenAPI description and for the server itself."""

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field, JsonValue, StrictBool


class Bearer(BaseModel):
    """Authentication at a receiver with a bearer token."""

    strategy: Literal["bearer"]
    token: str


class Basic(BaseModel):
    """Authentication at a receiver with HTTP Basic."""

    strategy: Literal["basic"]
    username: str
    password: str


class EventStream(BaseModel):
    """The events to send during the execution, and the URL to send them to."""

    events: list[str]
    url: str
    realtime: StrictBool = False
    authentication: Bearer | None = None


class HumanInputWebhook(BaseModel):
    """The URL to call when the crew waits for human input, with authentication."""

    url: str
    authentication: Bearer | Basic | None = Field(default=None, discriminator="strategy")


class KickoffRequest(BaseModel):
    """Body of a kickoff request."""

    inputs: dict[str, Any]
    meta: dict[str, Any] | None = None
    task_webhook: str | None = Field(default=None, alias="taskWebhookUrl")
    step_webhook: str | None = Field(default=None, alias="stepWebhookUrl")
    crew_webhook: str | None = Field(default=None, alias="crewWebhookUrl")
    human_input_webhook_url: str | None = Field(default=None, alias="humanInputWebhookUrl")
    human_input_webhook: HumanInputWebhook | None = Field(default=None, alias="humanInputWebhook")
    event_stream: EventStream | None = Field(default=None, alias="webhooks")
    restored_from: str | None = Field(default=None, alias="restoreFromStateId")

    def webhooks(self) -> dict[str, JsonValue]:
        """Return the callback URLs and ``humanInputWebhook`` by their name in the request."""
        named = {"task_webhook", "step_webhook", "crew_webhook", "human_input_webhook_url", "human_input_webhook"}
        return self.model_dump(by_alias=True, exclude_none=True, include=named)

    def events(self) -> dict[str, Any] | None:
        """Return the settings for events as they were sent."""
        return self.event_stream.model_dump(exclude_unset=True) if self.event_stream else None


class Resume(BaseModel):
    """Body of ``POST /resume``, in either spelling. ``task_id`` names the request for input, by its ID or task."""

    execution_id: str = Field(validation_alias=AliasChoices("execution_id", "executionId"))
    task_id: str | None = Field(default=None, validation_alias=AliasChoices("task_id", "taskId"))
    human_feedback: str = Field(default="", validation_alias=AliasChoices("human_feedback", "humanFeedback"))
    is_approve: StrictBool = Field(default=False, validation_alias=AliasChoices("is_approve", "isApprove"))
    human_input_webhook: HumanInputWebhook | None = Field(default=None, alias="humanInputWebhook")
