"""DAGs to deploy next to your own: ``python -m airflow_provider_crew dags --into DIR`` copies them."""
