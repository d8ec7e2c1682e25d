"""Run CrewAI crews and flows from Apache Airflow."""

__version__ = "0.1.0"
