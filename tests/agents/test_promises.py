"""Each promise, kept by a crew that is a tool of an agent: the scenarios are those of all kinds of task."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.ai.managed_agents import ManagedAgentRequest
from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_crew.tool.agent import CrewAgentHook
from tests.integration.tasks import INPUTS
from tests.promises.kinds import Job
from tests.promises.promises import PROMISES, cells

pytest_plugins = ["tests.promises.fixtures"]


class CallingOperator(BaseOperator):
    """Calls a crew as an agent does, with the same inputs in each attempt."""

    template_fields = ("crew_conn_id",)

    def __init__(
        self,
        *,
        crew_conn_id: str = "crew_default",
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.crew_conn_id = crew_conn_id
        self.timeout = timeout

    def execute(self, context: Any) -> dict[str, Any]:
        del context
        hook = CrewAgentHook(self.crew_conn_id)
        topic, audience = INPUTS["topic"], INPUTS["audience"]
        request = ManagedAgentRequest(prompt=topic, vendor_options={"audience": audience}, timeout=self.timeout)
        return {"output": hook.agent().invoke(request).text}


class Tool(Job):
    def operator(self, **options: Any) -> Any:
        options.pop("max_outage", None)  # it has no such option
        return CallingOperator(task_id="crew", **options)


@pytest.mark.parametrize(("promise", "kind"), [*cells("tool")])
def test_promise_is_kept(world, promise, kind):
    del kind
    PROMISES[promise](world, Tool)
