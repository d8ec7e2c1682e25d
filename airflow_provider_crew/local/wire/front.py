"""First steps for every request: record it, then let the gateway or a fault answer in the crew's place."""

import contextlib
from collections.abc import Callable

from aiohttp import web

from airflow_provider_crew.local.answer import text_answer
from airflow_provider_crew.local.faults.calls import Faults
from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.record import ReceivedRequest, Record
from airflow_provider_crew.local.wire.api import Api
from airflow_provider_crew.local.wire.gateway import Gateway

# Larger than the inputs of any crew.
LARGEST_BODY = 16 * 1024 * 1024
_TOO_LARGE = text_answer(413, f"The body is larger than {LARGEST_BODY // 1024 // 1024} MiB.")


class Front:
    """The handler that the server calls, in front of the crew's own."""

    def __init__(
        self,
        api: Api,
        record: Record,
        gateway: Gateway,
        faults: Faults,
        on_request: Callable[[ReceivedRequest], None],
    ) -> None:
        self._api = api
        self._record = record
        self._gateway = gateway
        self._faults = faults
        self._on_request = on_request

    async def __call__(self, raw: web.BaseRequest) -> web.StreamResponse:
        """
        Record a request and answer it. An incomplete request from a client that disconnects is ignored.

        Without a valid token the body is not read, because it could have any size.
        """
        request = _head(raw)
        is_known = self._api.knows(request)
        is_whole = await _read_body(raw, request) if is_known else True
        self._record.add(request, of_stranger=not is_known)
        exchange = Exchange(request, raw, self._api.answer)
        try:
            # A client that disconnects is expected.
            with contextlib.suppress(ConnectionError):
                await (self._see_to(exchange) if is_whole else exchange.send(_TOO_LARGE))
        finally:
            self._on_request(request)
        return exchange.answered

    async def _see_to(self, exchange: Exchange) -> None:
        # Faults belong to the crew, so they wait until the crew is awake.
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


def _head(raw: web.BaseRequest) -> ReceivedRequest:
    if raw.transport is None:
        raise ConnectionResetError("The client has gone.")
    sent = raw.raw_headers
    host, port, *_ = raw.transport.get_extra_info("peername")
    return ReceivedRequest(
        method=raw.method,
        path=raw.rel_url.raw_path,
        query=raw.rel_url.raw_query_string,
        headers=tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in sent),
        body=b"",
        client=(host, port),
    )


async def _read_body(raw: web.BaseRequest, request: ReceivedRequest) -> bool:
    """Read the body, and return whether it is small enough to be read."""
    if (raw.content_length or 0) > LARGEST_BODY:
        return False
    if raw.transport and raw.headers.get("expect", "").lower() == "100-continue":
        raw.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = bytearray()
    async for part in raw.content.iter_any():
        body += part
        if len(body) > LARGEST_BODY:
            return False
    request.body = bytes(body)
    return True
