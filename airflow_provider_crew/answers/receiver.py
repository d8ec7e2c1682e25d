"""
Receiver of human input webhooks, in Airflow's API server.

It has no login of Airflow, and may face the internet. So it checks the secret before it reads a body, reads a
limited body for a limited time, and tells the sender one fixed sentence.
"""

import asyncio
import hmac
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow.providers.common.compat.sdk import conf
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from airflow_provider_crew.answers.question import ASKED, QUESTION, Call, Undeliverable
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.text import mask, maskable
from airflow_provider_crew.hooks.connection import load_connection, load_secret

# A call at the end of an execution contains its result.
_MOST_BYTES = 4 * 2**20
# Values in a body. While Python's parser runs, it lets no other thread run, which would answer other requests: for
# seconds if the body had nothing but values.
_MOST_VALUES = 100_000

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}, 413: {"Connection": "close"}}


def deliver(call: Call) -> None:
    """
    Add a question to the XCom of a running or deferred task, and delete a request that shows another question.

    Only a plugin in the API server may call this, because it uses Airflow's database. The request is deleted
    because Airflow 3.3 would keep its text.
    """
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from airflow.utils.state import State
    from sqlalchemy import delete, select

    goes_on = TaskInstance.state.in_(State.unfinished - {None, "up_for_retry"})
    with create_session() as session:
        # Locked, so that two deliveries change it one after the other.
        instances = session.scalars(
            select(TaskInstance.id).filter_by(**call.task).where(goes_on).with_for_update()
        ).all()
        its_xcom = select(XComModel).filter_by(key=QUESTION, **call.task)
        found = session.scalars(its_xcom).first() if len(instances) == 1 else None  # a task loop has more
        if (box := call.added_to(found and found.value)) is None:
            return
        XComModel.set(QUESTION, box, **call.task, serialize=False, session=session)
        its_request = HITLDetail.ti_id == instances[0]
        params = session.scalars(select(HITLDetail.params).where(its_request)).first() or {}
        if params.get(ASKED, {}).get("value") != call.task_id:
            session.execute(delete(HITLDetail).where(its_request))


def token_for(task: Mapping[str, Any]) -> str:
    """Return the token that the crew of a task may repeat. Empty if the connection is unreadable here."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with suppress(Exception):  # a question that is not delivered costs more
        with create_session() as session:
            box = session.scalars(select(XComModel.value).filter_by(key=QUESTION, **task)).one()
        return load_connection(box["conn_id"]).settings.token
    return ""


class Receiver:
    """Endpoint of the webhooks."""

    def __init__(self) -> None:
        self._secret: str | None = None
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def receive(self, request: Request) -> Response:
        """Deliver the question of a crew to the task that waits for it."""
        try:
            secret = _checked(await self.known_secret(), request.headers.get("authorization", ""))
            await run_in_threadpool(self._take, await json_of(request), secret)
        except Undeliverable as why:
            return refusal(why)
        return Response(status_code=204)

    def _take(self, body: Any, secret: str) -> None:
        call = Call.of(body)
        call.draft = mask(call.draft, maskable(token_for(call.task), secret))
        deliver(call)

    async def known_secret(self) -> str | None:
        """Return the secret of the receiver as it was last readable. None if it never was."""
        if self._secret and self._reading.locked():
            return self._secret
        async with self._reading:  # a delivery that arrives during the first look-up must not be rejected
            if time.monotonic() - self._read_at > timing.SECRET_AGE:
                with suppress(Exception):  # CrewAI does not repeat a delivery, so none is rejected for an outage
                    self._secret = await run_in_threadpool(load_secret, conf.get("crew", "webhook_conn_id"))
                self._read_at = time.monotonic()
        return self._secret


def app(receiver: Receiver) -> FastAPI:
    """Return the application. It has no description."""
    application = FastAPI(openapi_url=None, redirect_slashes=False)
    application.add_api_route("/events", receiver.receive, methods=["POST"])
    return application


def refusal(why: Undeliverable) -> Response:
    """Return the response to a webhook that cannot be delivered."""
    return JSONResponse({"detail": str(why)}, why.status, _HEADERS.get(why.status))


def _checked(secret: str | None, given: str) -> str:
    """Return the secret if the crew has sent it as a bearer token."""
    scheme, _, token = given.partition(" ")
    if secret and scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), secret.encode()):
        return secret
    raise Undeliverable("the webhook secret is missing or wrong", 401)


async def json_of(request: Request) -> Any:
    """Return the body as JSON data."""
    body = await _body_of(request)
    if sum(map(body.count, (b"{", b"[", b","))) > _MOST_VALUES:
        raise Undeliverable("the body has too many values", 413)
    try:
        return await run_in_threadpool(json.loads, body)
    except (ValueError, RecursionError):
        raise Undeliverable("the body is not JSON") from None


async def _body_of(request: Request) -> bytes:
    """Return the body. It may not be too large, whatever length it declares."""
    body = bytearray()
    try:
        async with asyncio.timeout(timing.WEBHOOK_BODY):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise Undeliverable("the body is too large", 413)
    except TimeoutError:
        raise Undeliverable("the body took too long", 408) from None
    return bytes(body)
