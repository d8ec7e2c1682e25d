"""Status of an execution that continues under another ID: which of two responses counts."""

import pytest

from airflow_provider_crew.client.errors import ExecutionNotFound, ExecutionUnknown, ServiceError
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.client.options import REQUEST_TIMEOUT
from airflow_provider_crew.client.watch import Watch, WatchRules

NOT_FOUND = ExecutionNotFound("unknown")
BROKEN = ServiceError("500")


def execution(state, kickoff_id):
    return read_execution({"state": state, "result": "The end", "status": "why"}, kickoff_id)


def watch():
    return Watch("first", WatchRules(deadline=1e9, continued_as="second"), clock=lambda: 0.0, random=lambda: 0.5)


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        ("RUNNING", "RUNNING", "running"),
        ("RUNNING", NOT_FOUND, "running"),
        ("RUNNING", BROKEN, "running"),
        ("RUNNING", "FAILED", "running"),
        ("RUNNING", "SUCCESS", "completed"),
        ("SUCCESS", NOT_FOUND, "completed"),
        ("SUCCESS", BROKEN, "completed"),
        ("SUCCESS", "RUNNING", "completed"),
        ("SUCCESS", "FAILED", "completed"),
        ("FAILED", "RUNNING", "error"),
        ("FAILED", NOT_FOUND, "error"),
        ("FAILED", "SUCCESS", "completed"),
        (NOT_FOUND, "RUNNING", "running"),
        (NOT_FOUND, "PAUSED", "paused"),
        (NOT_FOUND, "SUCCESS", "completed"),
        (NOT_FOUND, "FAILED", ExecutionUnknown),
        (NOT_FOUND, NOT_FOUND, ExecutionNotFound),
        (NOT_FOUND, BROKEN, ExecutionNotFound),
        (BROKEN, "SUCCESS", "completed"),
        *((BROKEN, second, ServiceError) for second in ("RUNNING", "FAILED", NOT_FOUND, BROKEN)),
    ],
)
def test_one_of_two_ids_counts(first, second, counts):
    found = [
        each if isinstance(each, Exception) else execution(each, kickoff_id)
        for each, kickoff_id in ((first, "first"), (second, "second"))
    ]
    if not isinstance(counts, str):
        with pytest.raises(counts) as caught:
            watch().whichever(found)
        if counts is ExecutionUnknown:
            assert (caught.value.kickoff_id, " " in caught.value.event) == ("first", True)
        return
    status = watch().whichever(found)
    assert (status.status, status.kickoff_id) == (counts, "first")


def test_one_id_is_returned_as_it_is():
    (only,) = found = [execution("SUCCESS", "first")]

    assert watch().whichever(found) is only
    alone = Watch("a", WatchRules(deadline=1.0), clock=lambda: 0.0, random=lambda: 0.5)
    assert (alone.ids, alone.request_timeout) == (["a"], REQUEST_TIMEOUT)
