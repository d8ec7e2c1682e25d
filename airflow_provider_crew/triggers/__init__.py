"""Triggers: wait for executions without holding a worker."""
