"""
Counts kickoffs through connections that set max_kickoffs_per_day.

Each run stands for one kickoff, and does nothing. Its configuration tells which task it was.
"""

from airflow.providers.common.compat.sdk import DAG

with DAG("crew_budget", schedule=None, tags=["crew"]):
    pass
