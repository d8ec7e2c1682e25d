"""Sensors: wait for an execution that was kicked off elsewhere."""
