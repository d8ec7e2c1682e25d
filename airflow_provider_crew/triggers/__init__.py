"""Triggers that wait for executions without occupying a worker."""
