"""Sensor that waits for an execution started elsewhere."""
