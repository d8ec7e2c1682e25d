"""One attempt of a crew task. Imported when a task runs, not when a DAG is parsed."""
