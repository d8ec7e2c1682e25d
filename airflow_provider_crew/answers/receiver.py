"""
Receiver of human input webhooks and of the calls of crews that have started, in Airflow's API server.

It has no login of Airflow, and may face the internet. So it checks the secret before it reads a body, reads a
limited body for a limited time, and tells the sender one fixed sentence.
"""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import conf
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from airflow_provider_crew.answers.question import QUESTION, Call, Undeliverable
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.calls import Address, ids_in, read_address
from airflow_provider_crew.client.settings import WebhookSecret
from airflow_provider_crew.client.text import forms_of, mask
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.task.settle import HEARD

# A call at the end of an execution contains its result.
_MOST_BYTES = 4 * 2**20
# Seconds before the connection is read again. An unauthenticated flood must not reach a secrets backend.
_FRESH = 30.0
# Executions of the command `check` whose calls are remembered.
_MOST_CHECKED = 100

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


Change = Callable[[Mapping[str, Any], str, Callable[[Any], Any]], None]
State = tuple[Callable[[str], str | None], Callable[[str, str], None]]


@contextmanager
def task_state(task: Mapping[str, Any], *, is_locked: bool = False) -> Iterator[State]:
    """
    Yield functions that get and set an entry of a task's state store, as JSON, in one transaction.

    :param is_locked: Whether to wait for other transactions with a lock. Airflow's heartbeats wait for it as well.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.state import TaskScope, get_state_backend
    from airflow.utils.session import create_session
    from sqlalchemy import select

    store, scope = get_state_backend(), TaskScope(**task)
    with create_session() as session:
        if is_locked:
            session.scalars(select(TaskInstance.id).filter_by(**task).with_for_update()).all()
        yield partial(store.get, scope, session=session), partial(store.set, scope, session=session)


class Receiver:
    """
    Endpoints of the webhooks.

    ``change``, ``state`` and ``load`` are Airflow's database and connections.
    """

    def __init__(
        self,
        load: Callable[[str], WebhookSecret] = load_secret,
        change: Change = change_xcom,
        state: Callable[..., AbstractContextManager[State]] = task_state,
    ) -> None:
        self._load = load
        self._change = change
        self._state = state
        self._checked: dict[str, dict[str, str]] = {}
        self._secret: WebhookSecret | None = None
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def receive(self, request: Request) -> Response:
        """Deliver the question of a crew to the task that waits for it."""
        try:
            call = await self._read(request)
            await run_in_threadpool(self._change, call.task, QUESTION, call.added_to)
        except Undeliverable as why:
            return JSONResponse({"detail": str(why)}, why.status, _HEADERS.get(why.status))
        return Response(status_code=204)

    async def called(self, request: Request, address: str) -> Response:
        """Keep the ID of an execution that a crew has started, for a task that has not got the response."""
        secret = await self._known_secret()
        known = secret and read_address(address, secret.password)
        if not known:
            return JSONResponse({"detail": "no kickoff of this Airflow has this address"}, 404)
        if request.method == "GET":  # the command `check` asks whether its crew has called
            return JSONResponse(self._checked.get(known.call, {}))
        try:
            ids = ids_in(await _json_of(request))
            await run_in_threadpool(self.keep, known, ids)
        except Undeliverable as why:
            return JSONResponse({"detail": str(why)}, why.status, _HEADERS.get(why.status))
        return Response(status_code=204)

    def keep(self, address: Address, ids: dict[str, str]) -> None:
        """Store the IDs beside the record that waits for them. The first call counts."""
        if not address.task:
            self._checked = dict([*self._checked.items(), (address.call, ids)][-_MOST_CHECKED:])
            return
        with self._state(address.task) as (get, _):
            # A record with an ID has no hash. Its time proves nothing, because a hash is what the sender sent.
            is_awaited = address.call in (get(address.record) or "")
        if is_awaited:
            with self._state(address.task, is_locked=True) as (get, put):
                key = f"{HEARD}_{address.call}"
                before = json.loads(get(key) or "{}")
                if (known := ids | before) != before:
                    put(key, json.dumps(known))

    async def _read(self, request: Request) -> Call:
        """Return the question in a delivery."""
        secret = await self._known_secret()
        if secret is None or not _has_secret(request.headers.get("authorization", ""), secret):
            raise Undeliverable("the webhook secret is missing or wrong", 401)
        call = Call.of(await _json_of(request))
        call.draft = mask(call.draft, forms_of(*secret.secrets))
        return call

    async def _known_secret(self) -> WebhookSecret | None:
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


def app() -> FastAPI:
    """Return the application. It has two paths and no description."""
    application = FastAPI(openapi_url=None, redirect_slashes=False)
    receiver = Receiver()
    application.add_api_route("/events", receiver.receive, methods=["POST"])
    application.add_api_route("/events/{address}", receiver.called, methods=["POST", "GET"])
    return application


def _has_secret(given: str, secret: WebhookSecret) -> bool:
    """Whether the crew has sent the secret as kickoffs ask for it: as Basic if there is a login, or as Bearer."""
    scheme, _, credentials = given.partition(" ")
    wanted, proof = "bearer", secret.password
    if secret.login:
        wanted, proof = "basic", base64.b64encode(f"{secret.login}:{secret.password}".encode()).decode()
    is_equal = hmac.compare_digest(credentials.strip().encode(), proof.encode())
    return is_equal and scheme.lower() == wanted


async def _json_of(request: Request) -> Any:
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
        async with asyncio.timeout(timing.current().webhook_body):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise Undeliverable("the body is too large", 413)
    except TimeoutError:
        raise Undeliverable("the body took too long", 408) from None
    return bytes(body)
