"""What proves the provider, from its parts to a real Airflow."""
