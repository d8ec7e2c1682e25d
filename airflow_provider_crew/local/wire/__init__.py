"""HTTP: what listens, what every request passes first, which path is what, and how all that is described."""
