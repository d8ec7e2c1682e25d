"""A clock for the local service that stands still until a test moves it."""


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now
