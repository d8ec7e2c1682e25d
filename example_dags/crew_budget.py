"""
Count the kickoffs of connections that set max_kickoffs_per_day.

A run does nothing. It counts one kickoff, or up to 16 kickoffs of a batch, and its configuration
contains the task that sends them and the day's total.

Needs no connection. The DAG may be paused.

Costs nothing.
"""

from airflow.sdk import DAG

with DAG("crew_budget", schedule=None, tags=["crew"], doc_md=__doc__) as dag:
    pass
