"""A collector for OpenTelemetry's protocol over HTTP, as far as Airflow sends spans to one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.supported import AIRFLOW


@dataclass(frozen=True)
class Received:
    """One span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: float
    end: float
    attributes: dict[str, Any]


class OtlpReceiver:
    """Receives on loopback."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.spans += _spans_of(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.settings = {
            # Before 3.2, Airflow sets no tracer in a task's process.
            "AIRFLOW__TRACES__OTEL_ON": str(AIRFLOW >= (3, 2)),
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_SERVICE_NAME": "airflow",
        }

    def of(self, dag_id: str, run_id: str) -> list[Received]:
        """Return the spans of one run."""
        own = {"airflow.dag_id": dag_id, "airflow.dag_run.run_id": run_id}
        return [span for span in [*self.spans] if own.items() <= span.attributes.items()]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _spans_of(request: ExportTraceServiceRequest) -> list[Received]:
    return [
        Received(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano / 1e9,
            span.end_time_unix_nano / 1e9,
            {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes},
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
