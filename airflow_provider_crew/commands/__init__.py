"""What ``python -m airflow_provider_crew`` does: it asks a crew, and never kicks off."""
