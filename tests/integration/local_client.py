"""A plain HTTP client of the local server, for tests of that server."""

from __future__ import annotations

import json
from typing import Any

import requests

INPUTS = {"topic": "tides", "audience": "sailors"}


class Client:
    """Sends requests with the service's token, or with another one."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.token = service.token

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.service.url + path, timeout=60, **{"headers": self.headers} | options)

    def post(self, path: str, body: Any) -> requests.Response:
        """Send bytes as they are, or an object as JSON: with surrogates, which ``json=`` of requests rejects."""
        data = body if isinstance(body, bytes) else json.dumps(body)
        return requests.post(self.service.url + path, data=data, headers=self.headers, timeout=60)

    def kickoff(self, inputs: Any = None, **more: Any) -> Any:
        """Start an execution and return its kickoff ID."""
        answer = self.post("/kickoff", {"inputs": INPUTS if inputs is None else inputs, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["kickoff_id"]

    def stop(self, kickoff_id: str) -> requests.Response:
        return self.post(f"/stop/{kickoff_id}", b"")

    def status(self, kickoff_id: str) -> Any:
        answer = self.get(f"/status/{kickoff_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()
