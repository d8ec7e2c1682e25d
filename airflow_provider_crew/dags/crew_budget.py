"""
Count the kickoffs of connections that set max_kickoffs_per_day.

Each run counts one kickoff and does nothing. Its configuration names the task.
"""

from airflow.providers.common.compat.sdk import DAG

with DAG("crew_budget", schedule=None, tags=["crew"]):
    pass
