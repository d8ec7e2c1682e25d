"""A StatsD server, as far as Airflow talks to one: a socket that takes down what it is told."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from types import TracebackType
from typing import Self
from uuid import uuid4

from tests.airflow_runs import eventually

_LARGEST = 65536


class StatsdServer:
    """Receives on loopback. Airflow writes the tags behind the name when it is told that InfluxDB listens."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self.lines: list[str] = []
        self._address = host, port = self._socket.getsockname()
        self.settings = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": host,
            "AIRFLOW__METRICS__STATSD_PORT": str(port),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    def of(self, dag_id: str, task_id: str) -> dict[str, list[float]]:
        """Return the values of each metric of one task, up to now: a mark of our own comes after all of that."""
        mark = uuid4().hex
        eventually(lambda: self._socket.sendto(mark.encode(), self._address) and mark in self.lines, pause=0.02)
        told: dict[str, list[float]] = defaultdict(list)
        for line in list(self.lines):
            named, _, value = line.partition(":")
            name, *tags = named.split(",")
            if name.startswith("airflow.crew.") and {f"dag_id={dag_id}", f"task_id={task_id}"} <= set(tags):
                told[name.removeprefix("airflow.crew.")].append(float(value.partition("|")[0]))
        return told

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.sendto(b"", self._address)
        self._thread.join()
        self._socket.close()

    def _receive(self) -> None:
        while told := self._socket.recv(_LARGEST):
            self.lines += told.decode().splitlines()
