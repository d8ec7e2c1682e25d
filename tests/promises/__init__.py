"""
Promises that each kind of task keeps, as one table. Begin with ``promises.py``: it has a function for each.

``kinds.py`` has the kinds of task, ``table.py`` the cells that are red or absent, and ``harness.py`` Airflow.
"""
