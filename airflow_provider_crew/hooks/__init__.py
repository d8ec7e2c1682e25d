"""Hook for Airflow connections of type crew, and polling through it."""
