"""Run deployed AI crews from Apache Airflow."""

__version__ = "0.1.0"
