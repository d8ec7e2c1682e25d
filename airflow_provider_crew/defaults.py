"""How long to wait, and how often to look, when nobody says otherwise: in seconds."""

POLL_INTERVAL = 10.0
TIMEOUT = 24 * 60 * 60.0
MAX_OUTAGE = 600.0
# A service may need a moment until it knows an execution that it has just started.
NOT_FOUND_GRACE = 30.0
