"""Airflow plugin: the Crew tab in the Airflow UI, and a listener."""
