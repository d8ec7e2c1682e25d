"""
Pauses and limits that users cannot set, in seconds unless noted otherwise.

DAG files import this module, so it imports nothing slow. Code reads them when it uses them, so that tests can
replace them in every thread of the process.
"""

import time

# Between two polls. The interval grows with the age of the execution.
SHORTEST_INTERVAL = 5.0
LONGEST_INTERVAL = 60.0
# A crew may need a moment until it knows an execution that it has just started.
NOT_FOUND_GRACE = 30.0
# Between two polls while a new execution is not known yet, or one has just become unknown.
UNKNOWN_POLL = 5.0
# Between two polls while a person decides. Human input takes a while, and nothing else ends such a wait.
PEOPLE_POLL = 60.0
# Number of concurrent polls of one crew, and so of kept connections.
CONCURRENT_POLLS = 100
# Polls may be rejected for this long: a token may be replaced in the connection, and a gateway may recover.
LONGEST_REJECTION = 120.0

# A deployment that has been idle for a while needs a moment until it responds at all.
WAKING_UP = 300.0
# Between two requests to such a deployment.
WAKING_PAUSE = 5.0
# Other requests that are repeated wait at random, at most for this long, and then for as long as the crew
# asked for.
LONGEST_BACK_OFF = 10.0
LONGEST_RETRY_AFTER = 30.0
# Between two requests to stop an execution.
CANCEL_PAUSE = 1.0

# Before a connection is read again.
CONNECTION_AGE = 60.0
# Shorter, because a rejected token affects all watches, each at its own next poll.
CONNECTION_AGE_IF_REJECTED = 5.0
# Maximum wait for the connection: a secrets backend may hang, and the watch has a deadline.
CONNECTION_LOOKUP = 10.0

# Airflow ends a task whose heartbeats fail for about this long, so the task stops asking its store as well.
STORE_OUTAGE = 120.0
STORE_PAUSE = 2.0
# Between two looks whether Airflow is ending the task. It kills the process 5 seconds after SIGTERM.
LOOK = 0.5
# Between two looks of a process at the clock, which show that it was suspended.
BEAT = 5.0
# Airflow needs this long to clear a task, from reading its state to the commit of the changes.
TIME_TO_CLEAR = 1.0
# The scheduler sometimes fails a task that starts again within about a second of its deferral or reschedule,
# because it has not yet recorded the end of the previous process.
SHORTEST_DEFERRAL = 10.0

# Between two updates of one execution's progress. Later news replaces earlier news.
PROGRESS_PAUSE = 5.0
# From one XCom of a triggerer to the next, so that all cost its event loop no more than 3 % of a CPU.
PROGRESS_TURN = 1 / 15
# For the last progress before an event, which others may delay.
PROGRESS_LAST = 1.0
# After this, unchanged progress is pushed again, as a sign of life.
PROGRESS_REFRESH = 30.0
# The same for each writer of a triggerer, if that is more in total.
PROGRESS_REFRESH_EACH = 0.5

# For a response of Airflow to a trigger, which polls without it.
AIRFLOW_RESPONSE = 10.0
# Between two looks at the XCom of a question. Each is a request to Airflow's API server.
QUESTION_LOOK = 10.0
# Until a waiting crew is shown without its question. A webhook usually arrives within seconds, and within minutes
# if a gateway repeats it. On Airflow 3.3, one that arrives while such a request opens cannot replace it. After
# longer, users who could answer in the crew's dashboard would wait for nothing.
QUESTION_WAIT = 180.0
# Between two looks whether a crew whose kickoff is uncertain has called.
SETTLE_LOOK = 2.0
# Before the receiver's secret is read again. An unauthenticated flood must not reach a secrets backend.
SECRET_AGE = 30.0
# For the whole body of a webhook.
WEBHOOK_BODY = 10.0

# Between two looks at the rows that have ended.
BATCH_LOOK = 0.5
# After this, a wait ends if any row has ended, and the progress is logged again.
BATCH_WAIT = 30.0
# Rows that take no longer on average are watched in a worker, because a deferral would leave places empty.
BATCH_QUICK = 120.0
# The same as BATCH_WAIT in a worker, where others start at once.
BATCH_TURN = 5.0
# After this, a process shows again that Airflow has not replaced it before it sends a kickoff.
FENCE_AGE = 10.0
# Between two writes of the kickoff IDs of a group that is being sent.
BATCH_SAVE = 0.25
# Without new kickoffs after the crew did not respond to one.
BATCH_BACK_OFF = 15.0
# Before a result file is written again, and twice as long each time after that.
STORAGE_PAUSE = 1.0


def ticks() -> float:
    """Return seconds that pass even while the machine sleeps. Setting the machine's clock does not change them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
