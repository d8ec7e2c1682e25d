"""Error for a service that cannot start."""


class Unusable(ValueError):
    """The scenario or project cannot be served. The message gives the reason and the next step."""

    traceback = ""
    """Traceback in the user's code."""
