"""Webhooks of executions, called as events happen."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from airflow_provider_crew.local.executions import Execution, Standing
from airflow_provider_crew.local.scenario import Delivery

# Seconds between two checks of an execution. Only executions with webhooks are checked.
_PAUSE = 0.05
_TIMEOUT = aiohttp.ClientTimeout(total=10)
_BEGIN = Standing(0, over=False, seconds=0.0)
_BAD = 400

Proof = Mapping[str, str] | None
"""Authentication of a kickoff."""

# The webhook for each event, and the event's names in the event stream for a crew and for a flow.
_NAMES = {
    "started": ("", "crew_kickoff_started", "flow_started"),
    "task": ("taskWebhookUrl", "task_completed", "method_execution_finished"),
    "waits": ("humanInputWebhookUrl", "human_feedback_requested", "human_feedback_requested"),
    "completed": ("crewWebhookUrl", "crew_kickoff_completed", "flow_finished"),
    "failed": ("crewWebhookUrl", "crew_kickoff_failed", "flow_failed"),
}


class Callbacks:
    """Calls the webhooks of a kickoff, once for each event. A failed call is only logged."""

    def __init__(self, clock: Callable[[], float], log: Callable[[str], None]) -> None:
        self._clock = clock
        self._log = log
        self._loop: asyncio.AbstractEventLoop
        self._session: aiohttp.ClientSession
        self._delivered: dict[str, list[dict[str, Any]]] = {}
        self._following: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Allow webhook calls while the block lasts."""
        self._loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as self._session:
            try:
                yield
            finally:
                for task in self._following:
                    task.cancel()

    def follow(self, execution: Execution) -> None:
        """Call the webhooks of this kickoff until the execution ends. Safe to call from any thread."""
        if execution.webhooks or execution.events:
            self._loop.call_soon_threadsafe(self._begin, execution)

    def _begin(self, execution: Execution) -> None:
        task = asyncio.create_task(self._follow(execution))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, execution: Execution) -> None:
        before = _BEGIN
        await self._tell(execution, "started", {"inputs": execution.inputs})
        while not before.over:
            at = execution.standing(self._clock())
            for what, data in _news(before, at):
                await self._tell(execution, what, data)
            before = at
            await asyncio.sleep(_PAUSE)

    async def _tell(self, execution: Execution, what: str, data: dict[str, Any]) -> None:
        address, *types = _NAMES[what]
        ids = {"kickoff_id": execution.kickoff_id, "execution_id": execution.kickoff_id}
        webhooks: dict[str, Any] = execution.webhooks
        # ``humanInputWebhook`` is an object, the others are URLs.
        webhook = webhooks.get(address.removesuffix("Url")) or {"url": webhooks.get(address)}
        is_asking_flow = what == "waits" and execution.scenario.is_flow
        if (url := webhook["url"]) and not is_asking_flow:
            body = {**ids, **data, "meta": execution.meta}
            deliver = self._post if what == "task" else partial(self._deliver, way=self._way(execution, what))
            await deliver(execution, url, body, webhook.get("authentication"))
        stream: dict[str, Any] = execution.events or {}
        name = types[execution.scenario.is_flow]
        if name in stream.get("events", ()):
            at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            event = {"id": f"{uuid.uuid4()}", "execution_id": execution.kickoff_id, "timestamp": at, "type": name}
            body = {"events": [{**event, "data": data}]}
            deliver = partial(self._deliver, way=self._way(execution, what)) if what == "started" else self._post
            await deliver(execution, stream["url"], body, stream.get("authentication"))

    @staticmethod
    def _way(execution: Execution, what: str) -> Delivery:
        scenario = execution.scenario
        return scenario.human_input_webhook if what == "waits" else scenario.started_webhook

    async def _deliver(
        self, execution: Execution, url: str, body: dict[str, Any], proof: Proof, *, way: Delivery
    ) -> None:
        """Deliver a webhook as the scenario says."""
        if way.other_ids:
            for each in body.get("events", [body]):
                each |= {"kickoff_id": None, "execution_id": f"{uuid.uuid4()}"}
        if way.nested:
            body = {"type": "human_input_requested", way.nested: body}
        if way.wrong_address:
            url = f"{url[:-1]}{'0' if url[-1] != '0' else '1'}"
        earlier = self._delivered.setdefault(f"{execution.kickoff_id} {url}", [])
        await asyncio.sleep(way.delay)
        for each in [*[body] * way.times, *(earlier if way.again else ())]:
            await self._post(execution, url, each, proof)
        earlier.append(body)

    async def _post(self, execution: Execution, url: str, body: dict[str, Any], proof: Proof) -> None:
        headers = _proving(proof)
        try:
            async with self._session.post(url, json=body, headers=headers, allow_redirects=False) as answer:
                problem = f"returns {answer.status}" if answer.status >= _BAD else ""
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            problem = f"cannot be called: {type(error).__name__}"
        if problem:
            # The rest of a webhook's URL may be a secret.
            self._log(f"{execution.kickoff_id} webhook at {urlsplit(url).hostname} {problem}")


def _proving(proof: Proof) -> dict[str, str]:
    """Return the headers that authenticate the server at a receiver."""
    match proof:
        case {"strategy": "bearer", "token": token}:
            return {"authorization": f"Bearer {token}"}
        case {"strategy": "basic", "username": name, "password": password}:
            return {"authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}
    return {}


def _news(before: Standing, at: Standing) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events that happened between two checks."""
    for task in at.tasks[before.done :]:
        yield "task", asdict(task)
    if at.question and at.question != before.question:
        yield "waits", {"task_id": at.question, "task": at.current, "task_output": at.draft}
    if at.over and at.error is not None:
        yield "failed", {"error": at.error}
    elif at.over:
        yield "completed", {"result": at.output, "result_json": at.json, "token_usage": at.usage}
