"""Engine that hosts a real project, with one process per execution and the project's own interpreter."""
