"""Airflow agent that consults a crew, with another deployment of the crew as its standby."""

from __future__ import annotations

from airflow.providers.common.ai.managed_agents import FailoverManagedAgentClient
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets import ManagedAgentToolset
from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.tool.agent import CrewAgentHook

with DAG("crew_as_tool", schedule=None, tags=["crew"], params={"question": "Are electric ferries worth it?"}):
    """
    ### Let an agent consult a crew.

    Each call of the tool starts one execution, which is billed. A retry of the task waits for an execution that is
    still running. The agent calls the standby if the first crew rejects the token, is unreachable or fails.

    Needs the connections `openai`, `crew_default` and `crew_standby`, and Airflow 3.3.
    """
    crews = [CrewAgentHook(conn_id).agent() for conn_id in ("crew_default", "crew_standby")]
    AgentOperator(
        task_id="answer",
        llm_conn_id="openai",
        prompt="{{ params.question }}",
        toolsets=[
            ManagedAgentToolset(
                FailoverManagedAgentClient(crews),
                tool_name="research",
                description="Writes a briefing about a topic. Takes minutes. Consult it once for each topic.",
                vendor_options={"audience": "harbour masters"},
            )
        ],
        durable=True,
        retries=2,
    )
