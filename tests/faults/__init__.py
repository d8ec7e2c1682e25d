"""Fault cases in a real Airflow."""
