"""From an Airflow connection to a client of a crew."""
