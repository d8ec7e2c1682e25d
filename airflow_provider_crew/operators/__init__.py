"""Operators that start an execution of a crew, with or without waiting for its result."""
