"""What this package adds to Airflow's web interface."""
