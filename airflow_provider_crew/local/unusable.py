"""What the service cannot begin with."""


class Unusable(ValueError):
    """What the service was told to serve cannot be served. The message says why, and what to do."""

    traceback = ""
    """Where it went wrong in somebody else's code."""
