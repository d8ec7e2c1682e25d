"""``@task.crew`` decorator for TaskFlow."""
