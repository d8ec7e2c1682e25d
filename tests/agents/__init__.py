"""A crew as a tool of Airflow's agents, in an environment of their own: ``make test-agents``."""
