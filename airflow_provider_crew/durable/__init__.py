"""What makes an execution durable. Imported when a task runs, not when a DAG is parsed."""
