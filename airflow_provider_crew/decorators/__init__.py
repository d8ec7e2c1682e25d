"""Decorators: crews in TaskFlow."""
