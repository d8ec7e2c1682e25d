"""The engine that hosts a real project: each execution in a process of its own, with the project's interpreter."""
