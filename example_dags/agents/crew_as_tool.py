"""
Give an Airflow agent a crew as a tool, with a second deployment of the crew as its standby.

A retry of the task waits for an execution that is still running. The agent calls the standby if the
first crew rejects the token, is unreachable or fails.

Needs Airflow 3.3, `apache-airflow-providers-common-ai`, and the connections `openai`, `crew_default`
and `crew_standby`.

Costs one execution for each call of the tool, and the agent's own tokens.
"""

from airflow.providers.common.ai.managed_agents import FailoverManagedAgentClient
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets import ManagedAgentToolset
from airflow.sdk import DAG

from airflow_provider_crew.tool.agent import CrewAgentHook

with DAG(
    "crew_as_tool",
    schedule=None,
    tags=["crew"],
    params={"question": "Should we lease or buy our vans?"},
    doc_md=__doc__,
):
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
                vendor_options={"audience": "fleet managers"},
            )
        ],
        durable=True,
        retries=2,
    )
