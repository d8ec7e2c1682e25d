"""The calls of the synchronous client, over requests: apart from it, because that takes long to import."""

import http.client
from functools import partial

import requests
import urllib3

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.deadline import Exchange, NotedTransport
from airflow_provider_crew.service.network import connect_timeout, proxy_for, tls_context, trusted_certificates
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.wire import MAX_ANSWER_BYTES, CrewCalls, Outcome, Request, too_large

# What requests itself raises is an OSError.
_TRANSPORT_FAILURES = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)


class BlockingCalls(CrewCalls):
    """
    Sends from the thread that calls, and waits for the answer.

    A call is a coroutine for the sake of those that do not block. This one never waits for an event loop.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(settings)
        tls_context(settings)  # certificates that cannot be used are refused here, and in words
        self.transport = NotedTransport(proxy_for(settings))

    async def _exchange(self, request: Request) -> Outcome:
        if request.starts_work:
            self.transport.close()
        exchange = Exchange(partial(self._send, request))
        try:
            return exchange.outcome(self.settings.request_timeout)
        except _TRANSPORT_FAILURES as error:
            return self._unreachable(request, error, sent=exchange.sent)

    def _send(self, request: Request) -> Outcome:
        # No session, which would follow redirects, keep cookies and read a .netrc.
        prepared = requests.Request(request.method, request.url, request.headers, data=request.body).prepare()
        prepared.url = request.url  # preparing has undone escapes that an odd kickoff id needs
        with self.transport.send(
            prepared,
            stream=True,
            timeout=(connect_timeout(self.settings), self.settings.request_timeout),
            verify=trusted_certificates(self.settings) or False,
            proxies=self.transport.proxies,
        ) as response:
            body = bytearray()
            for chunk in response.raw.stream(decode_content=False):
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    return too_large(request, response.status_code, MAX_ANSWER_BYTES)
            return Answer(response.status_code, response.headers, bytes(body), request.secrets)
