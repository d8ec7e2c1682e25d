"""Promises that each kind of task keeps, as one table: ``table.py`` lists the cells that are red."""
