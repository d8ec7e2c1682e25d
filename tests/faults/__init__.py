"""What happens when something goes wrong, in a real Airflow."""
