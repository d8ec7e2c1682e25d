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
from typing import Any

from airflow.providers.common.compat.sdk import conf
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from airflow_provider_crew.answers.question import QUESTION, Call, Undeliverable
from airflow_provider_crew.client.settings import WebhookSecret
from airflow_provider_crew.client.text import forms_of, mask
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.versions import change_xcom

_MOST_BYTES = 64 * 1024
# Seconds for the whole body.
_TIME_TO_READ = 10.0
# Seconds before the connection is read again. An unauthenticated flood must not reach a secrets backend.
_FRESH = 30.0

Change = Callable[[Mapping[str, Any], str, Callable[[Any], Any]], None]


class Receiver:
    """Endpoint of the webhook. ``change_xcom`` and ``load`` are Airflow's database and connections."""

    def __init__(self, load: Callable[[str], WebhookSecret] = load_secret, change: Change = change_xcom) -> None:
        self._load = load
        self._change = change
        self._secret: WebhookSecret | None = None
        self._read_at = float("-inf")

    async def receive(self, request: Request) -> Response:
        """Deliver the question of a crew to the task that waits for it."""
        secret = await self._known_secret()
        if secret is None or not _is_authentic(request.headers.get("authorization", ""), secret):
            return _refusal(401, "the secret is missing or wrong", {"WWW-Authenticate": "Bearer"})
        try:
            async with asyncio.timeout(_TIME_TO_READ):
                body = await _read(request)
            if body is None:
                return _refusal(413, "the body is too large", {"Connection": "close"})
            call = Call.of(json.loads(body))
            call.draft = mask(call.draft, forms_of(*secret.secrets))
            await run_in_threadpool(self._change, call.task, QUESTION, call.added_to)
        except Undeliverable as why:
            return _refusal(422, str(why))
        except (ValueError, RecursionError):
            return _refusal(422, "the body is not JSON")
        except TimeoutError:
            return _refusal(408, "the body took too long", {"Connection": "close"})
        return Response(status_code=204)

    async def _known_secret(self) -> WebhookSecret | None:
        """Return the secret of the receiver, or None if it is unreadable."""
        if time.monotonic() - self._read_at > _FRESH:
            self._read_at = time.monotonic()
            try:
                self._secret = await run_in_threadpool(self._load, conf.get("crew", "webhook_conn_id"))
            except Exception:  # noqa: BLE001 - without a secret, every delivery is rejected
                self._secret = None
        return self._secret


def app() -> FastAPI:
    """Return the application. It has one path and no description."""
    application = FastAPI(title="Crew events", openapi_url=None, redirect_slashes=False)
    receiver = Receiver()
    application.add_api_route("/events", receiver.receive, methods=["POST"], response_class=Response)
    return application


def _is_authentic(given: str, secret: WebhookSecret) -> bool:
    """Whether the crew has sent the secret as kickoffs ask for it: as Basic if there is a login, or as Bearer."""
    scheme, _, credentials = given.partition(" ")
    wanted, proof = "bearer", secret.password
    if secret.login:
        wanted, proof = "basic", base64.b64encode(f"{secret.login}:{secret.password}".encode()).decode()
    is_equal = hmac.compare_digest(credentials.strip().encode(), proof.encode())
    return is_equal and scheme.lower() == wanted


async def _read(request: Request) -> bytes | None:
    """Return the body, or None if it is too large, whatever length it declares."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            return None
    return bytes(body)


def _refusal(status: int, why: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": why}, status_code=status, headers=headers)
