"""A crew service on your own machine, for development, tests and the demo."""
