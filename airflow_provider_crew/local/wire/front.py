"""What every request passes first: it is recorded, and a gateway or a fault may take it over."""

import contextlib
from collections.abc import Callable

from aiohttp import web

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.calls import Faults
from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.record import ReceivedRequest, Record
from airflow_provider_crew.local.wire.gateway import Gateway


class Front:
    """The handler that the server calls, in front of the crew's own."""

    def __init__(
        self,
        answer: Callable[[ReceivedRequest], Answer],
        record: Record,
        gateway: Gateway,
        faults: Faults,
        on_request: Callable[[ReceivedRequest], None],
    ) -> None:
        self._answer = answer
        self._record = record
        self._gateway = gateway
        self._faults = faults
        self._on_request = on_request

    async def __call__(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Record a request and see to its answer. One whose client goes away before it is whole is none."""
        request = await _received(raw)
        self._record.add(request)
        exchange = Exchange(request, raw, self._answer)
        try:
            # That a client has gone is no news.
            with contextlib.suppress(ConnectionError):
                await self._see_to(exchange)
        finally:
            self._on_request(request)
        return exchange.answered

    async def _see_to(self, exchange: Exchange) -> None:
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


async def _received(raw: web.BaseRequest) -> ReceivedRequest:
    connection = raw.transport
    if connection is None:
        raise ConnectionResetError("The client has gone.")
    if raw.headers.get("expect", "").lower() == "100-continue":
        connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    sent = raw.raw_headers
    host, port, *_ = connection.get_extra_info("peername")
    return ReceivedRequest(
        method=raw.method,
        path=raw.rel_url.raw_path,
        query=raw.rel_url.raw_query_string,
        headers=tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in sent),
        # Without the limit that read() of the request has: inputs may be large.
        body=await raw.content.read(),
        client=(host, port),
    )
