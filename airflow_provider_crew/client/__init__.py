"""Client for the crew's REST API. Nothing here imports Airflow."""
