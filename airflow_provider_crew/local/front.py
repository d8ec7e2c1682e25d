"""What every request passes first: it is recorded, and a gateway or a fault may take it over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_crew.local.exchange import Exchange
from airflow_provider_crew.local.record import ReceivedRequest, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from airflow_provider_crew.local.faults import Faults
    from airflow_provider_crew.local.gateway import Gateway


class Front:
    """The ASGI application that the server runs, in front of the crew's own."""

    def __init__(
        self,
        app: ASGIApp,
        record: Record,
        gateway: Gateway,
        faults: Faults,
        on_request: Callable[[ReceivedRequest], None],
    ) -> None:
        self._app = app
        self._record = record
        self._gateway = gateway
        self._faults = faults
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Record a request and see to its answer."""
        body = await _whole_body(receive)
        if body is None:
            return
        request = _received(scope, body)
        self._record.add(request)
        # Matching the undecoded path keeps an encoded slash inside its segment.
        exchange = Exchange(request, self._app, {**scope, "path": request.path}, (receive, send))
        try:
            await self._answer(exchange)
        finally:
            self._on_request(request)

    async def _answer(self, exchange: Exchange) -> None:
        # A fault is the crew's, so it waits until the crew is awake.
        asleep = self._gateway.answer()
        if asleep is not None:
            exchange.request.fault = "cold_start"
            await exchange.send(asleep)
            return
        fault = self._faults.next_for(exchange.request.operation)
        if fault is None:
            await exchange.send(await exchange.take())
        else:
            exchange.request.fault = fault.kind
            await fault.happen(exchange)


async def _whole_body(receive: Receive) -> bytes | None:
    """Return None when the client went away before it had sent the whole request."""
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)
    return None


def _received(scope: Scope, body: bytes) -> ReceivedRequest:
    return ReceivedRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("ascii"),
        query=scope["query_string"].decode("ascii"),
        headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        body=body,
        client=scope["client"],
    )
