"""Durable execution of crew tasks. Imported when a task runs, not when a DAG is parsed."""
