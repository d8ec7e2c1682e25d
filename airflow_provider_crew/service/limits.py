"""How long to wait for a service, and how often to poll it: in seconds, when nobody says otherwise."""

TIMEOUT = 24 * 60 * 60.0
MAX_OUTAGE = 600.0
# From connecting to the last byte of an answer.
REQUEST_TIMEOUT = 60.0
# A service may need a moment until it knows an execution that it has just started.
NOT_FOUND_GRACE = 30.0
# A deployment that has been quiet for a while needs a moment, too, until it answers at all.
WAKING_UP = 300.0
# For how long a rejected token may still be replaced in the connection.
TOKEN_PATIENCE = 120.0
# Between two polls, growing with the age of the execution: its end is noticed soon, for its run time.
SHORTEST_INTERVAL = 5.0
LONGEST_INTERVAL = 60.0
