"""The crew over HTTP: the paths, the tokens, the errors, and a description of it all that is accurate."""

from __future__ import annotations

import copy
import json
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from airflow_provider_crew.local.dialects import DIALECTS
from airflow_provider_crew.local.kickoff import KickoffRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from airflow_provider_crew.local.crew import Crew
    from airflow_provider_crew.local.dialects import Dialect, Told
    from airflow_provider_crew.local.record import Operation

_BEARER = Annotated[HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False))]

_STATUS_PATHS = {"status_first": "/status/{kickoff_id}", "id_first": "/{kickoff_id}/status"}

# Where a person looks at an execution. It is no part of the API.
PAGE = "/executions/{kickoff_id}"

_KICKOFF_ID = {
    "name": "kickoff_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}


class Refused(Exception):
    """A request that is refused, and what to say to it."""

    def __init__(self, answer: Told) -> None:
        super().__init__(answer.body)
        self.answer = answer


def crew_app(crew: Crew) -> ASGIApp:
    """
    Return the crew's HTTP interface, in the dialect of its scenario at the time of a request.

    It expects the undecoded path as ``scope["path"]``, so that an id with an encoded slash is one segment.
    """
    spoken = cache(lambda name: CrewApp(crew, DIALECTS[name]))
    # What is built now does not delay the first answer.
    spoken(crew.scenario.dialect)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await spoken(crew.scenario.dialect)(scope, receive, send)

    return app


class CrewApp(FastAPI):
    """The HTTP interface of one crew in one dialect."""

    def __init__(self, crew: Crew, dialect: Dialect) -> None:
        super().__init__(
            title="Local crew service",
            version="1.0.0",
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            exception_handlers={Refused: self._tell_refusal, HTTPException: self._tell_unknown_path},
        )
        self._crew = crew
        self._dialect = dialect
        self._add_operations()

    def openapi(self) -> dict[str, Any]:
        """Describe the service as the scenario has it: its inputs, and only the paths it serves."""
        described = copy.deepcopy(super().openapi())
        for variant, path in _STATUS_PATHS.items():
            if not self._serves(variant):
                del described["paths"][path]
        body = KickoffRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        described["components"]["schemas"] |= body.pop("$defs")
        body["properties"]["inputs"] |= self._described_inputs()
        kickoff = described["paths"]["/kickoff"]["post"]
        kickoff["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        return described

    def _described_inputs(self) -> dict[str, Any]:
        scenario = self._crew.scenario
        return {
            "properties": {known.name: {"description": known.description} for known in scenario.inputs},
            "required": scenario.missing(scenario.received({})),
        }

    def _add_operations(self) -> None:
        self.add_api_route(
            "/inputs",
            self._inputs,
            operation_id="getInputs",
            summary="List the inputs the crew asks for",
            dependencies=[Depends(self._authenticate)],
            responses=self._responses("inputs"),
        )
        self.add_api_route(
            "/kickoff",
            self._kickoff,
            methods=["POST"],
            operation_id="kickoff",
            summary="Start an execution of the crew",
            dependencies=[Depends(self._authenticate), Depends(self._allow_kickoff)],
            responses=self._responses("kickoff"),
        )
        for variant, path in _STATUS_PATHS.items():
            self.add_api_route(
                path,
                self._status,
                name=variant,
                summary="Tell how an execution stands",
                operation_id="getExecutionStatus" + ("" if variant == "status_first" else "IdFirst"),
                dependencies=[Depends(self._authenticate)],
                responses=self._responses("status"),
                openapi_extra={"parameters": [_KICKOFF_ID]},
            )
        self.add_api_route(PAGE, self._page, include_in_schema=False)

    def _responses(self, operation: Operation) -> dict[int | str, dict[str, Any]]:
        return {status: _described(model) for status, model in self._dialect.bodies[operation].items()}

    def _serves(self, variant: str) -> bool:
        return self._crew.scenario.status_paths in ("both", variant)

    async def _authenticate(self, credentials: _BEARER) -> None:
        token = credentials.credentials if credentials else None
        if token is None or token not in (self._crew.token, self._crew.user_token):
            raise self._refused(401, "Unauthorized", "The bearer token is missing or invalid.")

    async def _allow_kickoff(self, credentials: _BEARER) -> None:
        crew = self._crew
        by_organization = credentials is not None and credentials.credentials == crew.token
        if not by_organization and not crew.scenario.user_token_may_kickoff:
            raise self._refused(403, "Forbidden", "A user token may not kick off this crew.")

    def _refused(self, status: int, error: str, message: str) -> Refused:
        return Refused(self._dialect.refusal(status, error, message))

    async def _inputs(self) -> Response:
        return _json(200, self._dialect.inputs(self._crew.scenario))

    async def _kickoff(self, request: Request) -> Response:
        wanted = self._read_kickoff(await request.body())
        inputs = self._crew.received(wanted.inputs, wanted.restored_from)
        missing = self._crew.scenario.missing(inputs)
        if missing:
            raise Refused(self._dialect.missing_inputs(missing))
        kickoff_id = self._crew.take(inputs, wanted.meta, wanted.webhooks(), wanted.events(), wanted.restored_from)
        return _json(200, {"kickoff_id": kickoff_id})

    async def _status(self, request: Request) -> Response:
        if not self._serves(request.scope["route"].name):
            raise HTTPException(404)
        kickoff_id = unquote(request.path_params["kickoff_id"])
        try:
            return _json(200, self._crew.status_body(kickoff_id, self._dialect.standing))
        except LookupError:
            return _response(self._dialect.unknown_execution(kickoff_id))

    async def _page(self, request: Request) -> Response:
        """Show an execution to a person, who has no token at hand: what a dashboard is to a deployed crew."""
        try:
            return _json(200, self._crew.shown(unquote(request.path_params["kickoff_id"])))
        except LookupError:
            raise HTTPException(404) from None

    def _read_kickoff(self, body: bytes) -> KickoffRequest:
        try:
            return KickoffRequest.model_validate(json.loads(body))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "The body"
            raise Refused(self._dialect.no_kickoff(f"{place}: {first['msg']}.")) from None
        except (ValueError, RecursionError) as error:
            raise Refused(self._dialect.no_json(f"{error}")) from None

    async def _tell_refusal(self, _: Request, refused: Refused) -> Response:
        return _response(refused.answer)

    async def _tell_unknown_path(self, request: Request, error: HTTPException) -> Response:
        body: JsonValue = {"detail": error.detail}
        if self._crew.scenario.unknown_path == "error_body":
            body = {"error": error.detail, "message": f"{request.method} {request.url.path} is not served here."}
        return _json(error.status_code, body, error.headers)


def _response(answer: Told) -> Response:
    if answer.plain:
        return PlainTextResponse(answer.body, answer.status)
    challenge = {"www-authenticate": "Bearer"} if answer.status == HTTPStatus.UNAUTHORIZED else None
    return _json(answer.status, answer.body, challenge)


def _json(status: int, body: JsonValue, headers: Mapping[str, str] | None = None) -> Response:
    """Encode with plain ASCII, so that even half a surrogate pair can be put out."""
    return Response(json.dumps(body), status, headers, media_type="application/json")


def _described(model: Any) -> dict[str, Any]:
    if model is str:
        return {"content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"model": model}
