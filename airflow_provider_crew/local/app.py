"""The crew over HTTP: the paths, the tokens, the errors, and a description of it all that is accurate."""

from __future__ import annotations

import copy
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from airflow_provider_crew.local import answers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_crew.local.crew import Crew

_BEARER = Annotated[HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False))]

_STATUS_PATHS = {"status_first": "/status/{kickoff_id}", "id_first": "/{kickoff_id}/status"}

_KICKOFF_ID = {
    "name": "kickoff_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}


class KickoffRequest(BaseModel):
    """What a kickoff sends."""

    inputs: dict[str, Any]
    meta: dict[str, Any] | None = None
    task_webhook: str | None = Field(default=None, alias="taskWebhookUrl")
    step_webhook: str | None = Field(default=None, alias="stepWebhookUrl")
    crew_webhook: str | None = Field(default=None, alias="crewWebhookUrl")

    def webhooks(self) -> dict[str, str]:
        """Return the callback addresses given, by their name in the request."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"inputs", "meta"})


class ServiceError(Exception):
    """An answer that is an error, with the documented body."""

    def __init__(self, status: int, error: str, message: str, **more: JsonValue) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, JsonValue] = {"error": error, "message": message, **more}


class CrewApp(FastAPI):
    """
    The HTTP interface of one crew.

    It expects the undecoded path as ``scope["path"]``, so that an id with an encoded slash is one segment.
    """

    def __init__(self, crew: Crew) -> None:
        super().__init__(
            title="Local crew service",
            version="1.0.0",
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            exception_handlers={ServiceError: self._tell_error, HTTPException: self._tell_unknown_path},
        )
        self._crew = crew
        self._add_operations()

    def openapi(self) -> dict[str, Any]:
        """Describe the service as the scenario has it: its inputs, and only the paths it serves."""
        described = copy.deepcopy(super().openapi())
        for variant, path in _STATUS_PATHS.items():
            if not self._serves(variant):
                del described["paths"][path]
        kickoff = described["paths"]["/kickoff"]["post"]
        inputs = kickoff["requestBody"]["content"]["application/json"]["schema"]["properties"]["inputs"]
        wanted = self._crew.scenario.inputs
        inputs["properties"] = {known.name: {"description": known.description} for known in wanted}
        inputs["required"] = [known.name for known in wanted if known.required]
        return described

    def _add_operations(self) -> None:
        self.add_api_route(
            "/inputs",
            self._inputs,
            operation_id="getInputs",
            summary="List the inputs the crew asks for",
            dependencies=[Depends(self._authenticate)],
            responses=_responses({200: answers.InputsAnswer}),
        )
        self.add_api_route(
            "/kickoff",
            self._kickoff,
            methods=["POST"],
            operation_id="kickoff",
            summary="Start an execution of the crew",
            dependencies=[Depends(self._authenticate), Depends(self._allow_kickoff)],
            responses=_responses(
                {
                    200: answers.KickoffAnswer,
                    400: answers.ErrorBody,
                    403: answers.ErrorBody,
                    422: answers.MissingInputsBody,
                }
            ),
            openapi_extra={"requestBody": _json_content(KickoffRequest)},
        )
        shapes = answers.Running | answers.Completed | answers.Failed | answers.DeployedWithJson | answers.Deployed
        for variant, path in _STATUS_PATHS.items():
            self.add_api_route(
                path,
                self._status,
                name=variant,
                summary="Tell how an execution stands",
                operation_id="getExecutionStatus" + ("" if variant == "status_first" else "IdFirst"),
                dependencies=[Depends(self._authenticate)],
                responses=_responses({200: shapes, 404: answers.ErrorBody}),
                openapi_extra={"parameters": [_KICKOFF_ID]},
            )

    def _serves(self, variant: str) -> bool:
        return self._crew.scenario.status_paths in ("both", variant)

    async def _authenticate(self, credentials: _BEARER) -> None:
        token = credentials.credentials if credentials else None
        if token is None or token not in (self._crew.token, self._crew.user_token):
            raise ServiceError(401, "Unauthorized", "The bearer token is missing or invalid.")

    async def _allow_kickoff(self, credentials: _BEARER) -> None:
        crew = self._crew
        by_organization = credentials is not None and credentials.credentials == crew.token
        if not by_organization and not crew.scenario.user_token_may_kickoff:
            raise ServiceError(403, "Forbidden", "A user token may not kick off this crew.")

    async def _inputs(self) -> Response:
        return _json(200, self._crew.scenario.inputs_body())

    async def _kickoff(self, request: Request) -> Response:
        wanted = _read_kickoff(await request.body())
        missing: list[JsonValue] = [*self._crew.scenario.missing(wanted.inputs)]
        if missing:
            raise ServiceError(
                422,
                "Missing inputs",
                f"These inputs are required: {', '.join(map(str, missing))}.",
                details={"missing_inputs": missing},
            )
        kickoff_id = self._crew.take(wanted.inputs, wanted.meta, wanted.webhooks())
        return _json(200, {"kickoff_id": kickoff_id})

    async def _status(self, request: Request) -> Response:
        if not self._serves(request.scope["route"].name):
            raise HTTPException(404)
        kickoff_id = unquote(request.path_params["kickoff_id"])
        try:
            return _json(200, self._crew.status_body(kickoff_id))
        except LookupError:
            if self._crew.scenario.unknown_execution == "state":
                return _json(200, answers.Deployed(state="NOT FOUND").model_dump())
            raise ServiceError(
                404, "Execution not found", f"No execution exists with the id {kickoff_id}."
            ) from None

    async def _tell_error(self, _: Request, error: ServiceError) -> Response:
        challenge = {"www-authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else None
        return _json(error.status, error.body, challenge)

    async def _tell_unknown_path(self, request: Request, error: HTTPException) -> Response:
        body: JsonValue = {"detail": error.detail}
        if self._crew.scenario.unknown_path == "error_body":
            body = {"error": error.detail, "message": f"{request.method} {request.url.path} is not served here."}
        return _json(error.status_code, body, error.headers)


def _read_kickoff(body: bytes) -> KickoffRequest:
    try:
        return KickoffRequest.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "The body"
        raise ServiceError(400, "Bad request", f"{place}: {first['msg']}.") from None
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "Bad request", f"The body is not JSON: {error}.") from None


def _json(status: int, body: JsonValue, headers: Mapping[str, str] | None = None) -> Response:
    """Encode with plain ASCII, so that even half a surrogate pair can be put out."""
    return Response(json.dumps(body), status, headers, media_type="application/json")


def _responses(models: dict[int | str, Any]) -> dict[int | str, dict[str, Any]]:
    everywhere = {401: answers.ErrorBody, 500: answers.ErrorBody}
    return {status: {"model": model} for status, model in sorted((everywhere | models).items())}


def _json_content(model: type[BaseModel]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}
