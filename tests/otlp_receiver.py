"""A collector for OpenTelemetry's protocol over HTTP, as far as Airflow sends spans to one."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.supported import AIRFLOW


def texts(span: Any) -> dict[str, str]:
    """Return the attributes of a span that are text."""
    return {each.key: each.value.string_value for each in span.attributes}


class OtlpReceiver:
    """Receives on loopback."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                of_resources = ExportTraceServiceRequest.FromString(body).resource_spans
                receiver.spans += [span for of in of_resources for scope in of.scope_spans for span in scope.spans]
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

    def of(self, dag_id: str, run_id: str) -> list[Any]:
        """Return the spans of one run."""
        own = {"airflow.dag_id": dag_id, "airflow.dag_run.run_id": run_id}
        return [span for span in [*self.spans] if own.items() <= texts(span).items()]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
