"""What runs inside a task. Nothing of it is imported when Airflow parses a DAG."""
