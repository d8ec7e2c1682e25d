"""What each release has stored in Airflow's database and in result files, read by today's code."""
