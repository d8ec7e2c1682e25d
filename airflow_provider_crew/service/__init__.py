"""Everything known about the crew service. Nothing in here knows Airflow."""
