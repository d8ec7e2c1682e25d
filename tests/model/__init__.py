"""A model that walks every state of a task: the real code in each process, and everything else as a model."""
