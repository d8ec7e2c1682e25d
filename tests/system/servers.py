"""Servers on loopback, as far as Airflow talks to them: they keep all metrics and spans that they get."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, BaseServer, UDPServer
from typing import Any
from uuid import uuid4

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from dev.loopback import HOST
from tests.airflow_runs import eventually
from tests.supported import AIRFLOW


@contextmanager
def serving(server: BaseServer) -> Iterator[Any]:
    """Serve in a thread."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


class StatsdServer(UDPServer):
    """Gets metrics. Airflow writes the tags behind the name when it is told that InfluxDB listens."""

    max_packet_size = 65536

    def __init__(self) -> None:
        super().__init__((HOST, 0), BaseRequestHandler)
        self.lines: list[str] = []
        self.settings = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": HOST,
            "AIRFLOW__METRICS__STATSD_PORT": str(self.server_address[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    def finish_request(self, request: Any, client_address: Any) -> None:
        del client_address
        self.lines += request[0].decode().splitlines()

    def of(self, dag_id: str, task_id: str | None = None) -> list[str]:
        """Return the lines about crews of a DAG, or of one task, up to now: a mark of our own comes after them."""
        mark = uuid4().hex
        address = self.server_address
        eventually(lambda: self.socket.sendto(mark.encode(), address) and mark in self.lines, pause=0.02)
        wanted = {f"dag_id={dag_id}"} | ({f"task_id={task_id}"} if task_id else set())
        return [
            line
            for line in [*self.lines]
            if line.startswith("airflow.crew.") and wanted <= {*line.partition(":")[0].split(",")}
        ]

    def values(self, dag_id: str, task_id: str) -> dict[str, list[float]]:
        """Return the values of each metric of one task."""
        found: dict[str, list[float]] = defaultdict(list)
        for line in self.of(dag_id, task_id):
            named, _, value = line.removeprefix("airflow.crew.").partition(":")
            found[named.partition(",")[0]].append(float(value.partition("|")[0]))
        return found


def texts(span: Any) -> dict[str, str]:
    """Return the attributes of a span that are text."""
    return {each.key: each.value.string_value for each in span.attributes}


class OtlpReceiver(ThreadingHTTPServer):
    """Gets spans, by OpenTelemetry's protocol over HTTP."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Spans)
        self.spans: list[Any] = []
        self.settings = {
            # Before 3.2, Airflow sets no tracer in a task's process.
            "AIRFLOW__TRACES__OTEL_ON": str(AIRFLOW >= (3, 2)),
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{self.server_port}",
            "OTEL_SERVICE_NAME": "airflow",
        }

    def of(self, dag_id: str, run_id: str) -> list[Any]:
        """Return the spans of one run."""
        own = {"airflow.dag_id": dag_id, "airflow.dag_run.run_id": run_id}
        return [span for span in [*self.spans] if own.items() <= texts(span).items()]


class _Spans(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        of_resources = ExportTraceServiceRequest.FromString(body).resource_spans
        self.server.spans += [span for of in of_resources for scope in of.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass
