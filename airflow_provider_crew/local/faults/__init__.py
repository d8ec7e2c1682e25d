"""Faults on demand: the calls that request them, their kinds, and their effect on an exchange."""
