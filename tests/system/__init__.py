"""Built wheels, and a real Airflow."""
