"""Receiver of the calls of crews that have started, in Airflow's API server."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from airflow_provider_crew.answers.question import Undeliverable
from airflow_provider_crew.answers.receiver import Receiver, json_of, refusal
from airflow_provider_crew.settle.address import HEARD, Address, ids_in, read_address

State = tuple[Callable[[str], str | None], Callable[[str, str], None]]


@contextmanager
def task_state(task: Mapping[str, Any]) -> Iterator[State]:
    """Yield functions that get and set an entry of a task's state store, as JSON, in one transaction."""
    from airflow.state import TaskScope, get_state_backend
    from airflow.utils.session import create_session

    store, scope = get_state_backend(), TaskScope(**task)
    with create_session() as session:
        yield partial(store.get, scope, session=session), partial(store.set, scope, session=session)


def keep(address: Address, ids: Mapping[str, str]) -> None:
    """Store the IDs beside the record that waits for them. The first call counts."""
    with task_state(address.task) as (get, put):
        # A record with an ID has no hash. Its time proves nothing, because a hash is what the sender sent.
        if address.call in (get(address.record) or ""):
            key = f"{HEARD}_{address.call}"
            before = json.loads(get(key) or "{}")
            if (known := {**ids, **before}) != before:
                put(key, json.dumps(known))


def add_route(application: FastAPI, receiver: Receiver) -> None:
    """Add the route that crews call at the addresses of their kickoffs."""

    async def called(request: Request, address: str) -> Response:
        secret = await receiver.known_secret()
        known = secret and read_address(address, secret)
        if not known:
            return refusal(Undeliverable("no kickoff of this Airflow has this address", 404))
        try:
            await run_in_threadpool(keep, known, ids_in(await json_of(request)))
        except Undeliverable as why:
            return refusal(why)
        return Response(status_code=204)

    application.add_api_route("/events/{address}", called, methods=["POST"])
