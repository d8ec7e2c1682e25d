"""Operators: kick a crew off, with or without waiting for its result."""
