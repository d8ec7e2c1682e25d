"""Answers to a crew from Airflow: experimental, and imported only if a task or the configuration asks for it."""
