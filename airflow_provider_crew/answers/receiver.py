"""
Receiver of human input webhooks, in Airflow's API server.

It has no login of Airflow, and may face the internet. So it checks the secret before it reads a body, reads a
limited body for a limited time, and tells the sender one fixed sentence.
"""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from airflow.providers.common.compat.sdk import conf
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from airflow_provider_crew.answers.question import QUESTION, Call, Undeliverable
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.settings import WebhookSecret
from airflow_provider_crew.client.text import mask, maskable
from airflow_provider_crew.hooks.connection import load_connection, load_secret

# A call at the end of an execution contains its result.
_MOST_BYTES = 4 * 2**20
# Seconds before the connection is read again. An unauthenticated flood must not reach a secrets backend.
_FRESH = 30.0

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}, 413: {"Connection": "close"}}


def change_xcom(task: Mapping[str, Any], key: str, change: Callable[[Any], Any]) -> None:
    """
    Change an XCom of a running or deferred task, and delete the task's request under Required Actions.

    Only a plugin in the API server may call this, because it uses Airflow's database. The request is deleted
    because Airflow 3.3 would keep its text.

    :param task: Columns that identify the task instance.
    :param change: Takes the XCom, or None if there is no such task. Returns None to change nothing.
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
            select(TaskInstance.id).filter_by(**task).where(goes_on).with_for_update()
        ).all()
        its_xcom = select(XComModel).filter_by(key=key, **task)
        is_one = len(instances) == 1  # a task loop has more
        found = session.scalars(its_xcom).first() if is_one else None
        if (changed := change(found and found.value)) is not None:
            XComModel.set(key, changed, **task, serialize=False, session=session)
            session.execute(delete(HITLDetail).where(HITLDetail.ti_id == instances[0]))


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


Change = Callable[[Mapping[str, Any], str, Callable[[Any], Any]], None]


class Receiver:
    """
    Endpoint of the webhooks.

    ``change`` and ``load`` are Airflow's database and connections.
    """

    def __init__(
        self,
        load: Callable[[str], WebhookSecret] = load_secret,
        change: Change = change_xcom,
    ) -> None:
        self._load = load
        self._change = change
        self._secret: WebhookSecret | None = None
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def receive(self, request: Request) -> Response:
        """Deliver the question of a crew to the task that waits for it."""
        try:
            call = await self._read(request)
            await run_in_threadpool(self._change, call.task, QUESTION, call.added_to)
        except Undeliverable as why:
            return refusal(why)
        return Response(status_code=204)

    async def _read(self, request: Request) -> Call:
        """Return the question in a delivery."""
        secret = await self.known_secret()
        if secret is None or not _has_secret(request.headers.get("authorization", ""), secret):
            raise Undeliverable("the webhook secret is missing or wrong", 401)
        call = Call.of(await json_of(request))
        token = await run_in_threadpool(token_for, call.task)
        call.draft = await run_in_threadpool(mask, call.draft, maskable(token, *secret.secrets))
        return call

    async def known_secret(self) -> WebhookSecret | None:
        """Return the secret of the receiver, or None if it is unreadable."""
        if self._secret and self._reading.locked():
            return self._secret
        async with self._reading:  # a delivery that arrives during the first look-up must not be rejected
            if time.monotonic() - self._read_at > _FRESH:
                try:
                    self._secret = await run_in_threadpool(self._load, conf.get("crew", "webhook_conn_id"))
                except Exception:  # noqa: BLE001 - without a secret, every delivery is rejected
                    self._secret = None
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


def _has_secret(given: str, secret: WebhookSecret) -> bool:
    """Whether the crew has sent the secret as kickoffs ask for it: as Basic if there is a login, or as Bearer."""
    scheme, _, credentials = given.partition(" ")
    wanted, proof = "bearer", secret.password
    if secret.login:
        wanted, proof = "basic", base64.b64encode(f"{secret.login}:{secret.password}".encode()).decode()
    is_equal = hmac.compare_digest(credentials.strip().encode(), proof.encode())
    return is_equal and scheme.lower() == wanted


async def json_of(request: Request) -> Any:
    """Return the body as JSON data."""
    try:
        return json.loads(await _body_of(request))
    except (ValueError, RecursionError) as error:
        if isinstance(error, Undeliverable):
            raise
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
