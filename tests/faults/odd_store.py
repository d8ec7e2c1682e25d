"""An object store with S3's protocol that loses, delays, doubles and refuses writes of a batch's facts."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import requests

HOST = "127.0.0.1"
BUCKET = "results"
_FAULTS = ("lost", "", "late", "double", "", "refused")
# Later than the batch looks whether the file is there.
_LATE = 2.0

ACCESS = {"key": "a", "secret": "b", "client_kwargs": {"region_name": "us-east-1"}}
# Code of a DAG file that reaches the store.
CLIENT = """
from airflow.sdk.io import attach
from s3fs import S3FileSystem

attach("s3", fs=S3FileSystem(endpoint_url={url!r}, **{access!r}))
"""


class OddStore:
    """Moto's S3 behind a layer that fails."""

    def __init__(self, store: Any) -> None:
        self.suffered = Counter[str]()
        self.url = ""
        self._store = store
        self._faults = cycle(_FAULTS)
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Pass on a request, unless it is a write whose turn it is to fail."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))

        def passed_on(start: Callable[..., Any]) -> Iterable[bytes]:
            answer: Iterable[bytes] = self._store({**environ, "wsgi.input": io.BytesIO(body)}, start)
            return answer

        def now() -> None:
            list(passed_on(lambda *_: None))

        if environ["REQUEST_METHOD"] != "PUT" or "/facts/" not in environ["PATH_INFO"]:
            return passed_on(start_response)
        with self._turn:
            fault = next(self._faults)
            self.suffered[fault] += 1
        if fault == "double":
            now()
        if fault in {"", "double"}:
            return passed_on(start_response)
        if fault == "late":
            threading.Timer(_LATE, now).start()
        refused = fault == "refused"
        start_response("503 Slow Down" if refused else "200 OK", [("ETag", '"0"'), ("Content-Length", "0")])
        return []

    def copy(self, prefix: str, folder: Path) -> None:
        """Copy the files below a prefix to a folder."""
        from s3fs import S3FileSystem

        S3FileSystem(endpoint_url=self.url, **ACCESS).get(f"{BUCKET}/{prefix}", str(folder), recursive=True)


@contextmanager
def odd_store() -> Iterator[OddStore]:
    """Serve the store on this machine."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    store = OddStore(DomainDispatcherApplication(create_backend_app))
    server = make_server(HOST, 0, store, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    store.url = f"http://{HOST}:{server.port}"
    requests.put(f"{store.url}/{BUCKET}", timeout=30).raise_for_status()
    try:
        yield store
    finally:
        server.shutdown()
