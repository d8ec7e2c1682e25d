"""DAGs that a file in your ``dags`` folder imports."""
