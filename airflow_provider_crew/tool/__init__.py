"""A crew as a tool of Airflow's agents. Imported by DAGs that use it."""
