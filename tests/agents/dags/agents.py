"""Agents that consult crews. The model is pydantic-ai's test model, which calls each tool once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.ai.managed_agents import FailoverManagedAgentClient
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets import ManagedAgentToolset
from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.tool.agent import CrewAgentHook


def agent(task_id: str, client: Any) -> AgentOperator:
    return AgentOperator(
        task_id=task_id,
        llm_conn_id="llm",
        model_id="test",
        prompt="Consult the crew.",
        toolsets=[ManagedAgentToolset(client, tool_name="research")],
        durable=True,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )


with DAG("agents", schedule=None, max_active_tasks=100):
    agent("single", CrewAgentHook("crew_single").agent())
    crews = [CrewAgentHook(f"crew_{name}").agent() for name in ("uncertain", "standby")]
    agent("uncertain", FailoverManagedAgentClient(crews))

with DAG("agents_killed", schedule=None):
    agent("killed", CrewAgentHook("crew_killed").agent())
