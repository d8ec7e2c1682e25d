"""How docs/messages.md is laid out: which message stands where, who meets it, and what is filled in."""

from __future__ import annotations

from typing import Any

from airflow_provider_crew.service import errors
from airflow_provider_crew.service import messages as of_service
from airflow_provider_crew.service.messages import Message
from airflow_provider_crew.tasks import ends
from airflow_provider_crew.tasks import messages as of_tasks
from airflow_provider_crew.tasks.messages import End

# A message, the error that says it, and who meets it: what is next differs.
Row = tuple[Message, type[errors.CrewError], tuple[str, ...]]

SEEN_BY = {
    "kickoff": "`CrewRunOperator`",
    "run": "`CrewRunOperator`",
    "before": "`CrewRunOperator` before Airflow 3.3",
    "sensor": "`CrewExecutionSensor`",
    "chosen": 'With `on_uncertain_kickoff="retry"`',
    "anew": 'With `on_invalid_output="retry"`',
}
_RUN = ("run", "before")
_WAIT = (*_RUN, "sensor")
_KICKOFF = ("kickoff",)
_NOBODY: tuple[str, ...] = ()


def _all(kind: type[errors.CrewError], by: tuple[str, ...], *said: Message) -> tuple[Row, ...]:
    return tuple((each, kind, by) for each in said)


# The commonest first.
GROUPS: tuple[tuple[str, str, tuple[Row, ...]], ...] = (
    (
        "A wait has ended without a result",
        "The crew was kicked off. It cannot be cancelled.",
        (
            (of_service.FAILED, errors.ExecutionFailed, _WAIT),
            (of_service.WAITED_TOO_LONG, errors.WaitedTooLong, _WAIT),
            (of_service.TIME_LIMIT, ends.CutShort, _WAIT),
            (of_service.TIME_LIMIT_AT_READING, ends.CutShort, _WAIT),
            (of_service.LOST_CONTACT, errors.LostContact, _WAIT),
            (of_service.STILL_UNKNOWN, errors.ExecutionUnknown, _WAIT),
            (of_service.NOT_FOUND, errors.ExecutionNotFound, ("sensor",)),
            (of_service.TOKEN_REJECTED_MEANWHILE, errors.WatchBroken, _WAIT),
            (of_service.NO_LONGER_WATCHED, errors.WatchBroken, _WAIT),
            (of_service.CANNOT_BE_WATCHED, errors.WatchBroken, _WAIT),
            (of_tasks.TOLD_TO_END, errors.CrewError, _WAIT),
            (of_tasks.ENDED_AFTER, errors.CrewError, _RUN),
            (of_tasks.NO_TRIGGERER, errors.LostContact, _WAIT),
            (of_service.OUT_OF_REACH, errors.ExecutionUnknown, _WAIT),
            (of_service.KNOWN_ELSEWHERE, errors.ExecutionUnknown, ("run",)),
            (of_tasks.OTHER_INPUTS, ends.OtherInputs, _NOBODY),
            (of_tasks.INVALID_KICKOFF_ID, errors.InvalidKickoffId, ("sensor",)),
            (of_tasks.NO_KICKOFF_ID, errors.InvalidKickoffId, _NOBODY),
        ),
    ),
    (
        "It is not known whether a kickoff has started an execution",
        "The crew may be running, and paid for, without anybody watching it. So look first, and clear then.",
        (
            (of_service.UNCERTAIN, errors.UncertainKickoff, ("kickoff", "chosen")),
            (of_service.UNCERTAIN_WITH_ID, errors.UncertainKickoff, ("kickoff", "chosen")),
            (of_tasks.LOST_ANSWER, errors.UncertainKickoff, _KICKOFF),
            (of_tasks.ENDED_WHILE_SENT, errors.UncertainKickoff, ("kickoff", "chosen")),
            (of_tasks.ONE_TRY_TOO_MANY, errors.UncertainKickoff, _KICKOFF),
            (of_tasks.BEGUN_ANEW, errors.UncertainKickoff, ("kickoff", "chosen")),
        ),
    ),
    (
        "The crew refuses a call, or does not answer it",
        (
            "So it is said before a kickoff. About a poll (*GET status*), or where a kickoff may have been "
            "taken, the same sentence stands in the details of another message, whose `Money` and `Next` count."
        ),
        (
            *_all(errors.NotAuthenticated, _KICKOFF, of_service.TOKEN_REJECTED),
            *_all(errors.Unreachable, _KICKOFF, of_service.NOT_REACHED),
            *_all(errors.ServiceError, _KICKOFF, of_service.SERVICE_ERROR),
            *_all(errors.Unreachable, _KICKOFF, of_service.NO_ANSWER),
            *_all(errors.Refused, _KICKOFF, of_service.REFUSED_FOR_INPUTS, of_service.REFUSED),
            *_all(errors.RateLimited, _KICKOFF, of_service.RATE_LIMITED),
            *_all(errors.Refused, _KICKOFF, of_service.NO_CREW),
            *_all(errors.NotAllowed, _KICKOFF, of_service.TOKEN_NOT_ALLOWED),
            *_all(errors.Unreachable, _KICKOFF, of_service.NOT_TRUSTED),
            *_all(errors.Refused, _KICKOFF, of_service.REDIRECTED),
        ),
    ),
    (
        "The inputs or the options of a kickoff are wrong",
        "They are checked before anything is sent.",
        _all(
            errors.InvalidInputs,
            _KICKOFF,
            of_service.NEEDED_INPUTS,
            of_service.LISTED_INPUTS,
            of_service.UNLISTED_INPUT,
            of_service.NO_OBJECT,
            of_service.NO_JSON,
            of_service.INVALID_WEBHOOKS,
            of_service.INVALID_STATE_ID,
            of_service.SECRET_IN_WEBHOOKS,
            of_service.SECRET_WITHOUT_WEBHOOKS,
        )
        + _all(errors.InvalidInputs, _KICKOFF, of_tasks.EMPTY_OPTION)
        + _all(errors.CrewError, _KICKOFF, of_tasks.NOT_RENDERED),
    ),
    (
        "The connection cannot be used",
        (
            "So it is said before a kickoff. A task that waits by then says that its execution cannot be "
            "watched, and this in the details."
        ),
        (
            *_all(errors.InvalidSettings, _KICKOFF, of_service.NO_CONNECTION, of_service.NO_ORGANIZATION_TOKEN),
            *_all(errors.Unreachable, _KICKOFF, of_service.CONNECTION_NOT_READ),
            *_all(errors.InvalidSettings, _KICKOFF, of_service.INVALID_FIELD, of_service.PLAIN_HTTP),
            *_all(errors.InvalidSettings, _KICKOFF, of_service.NO_USER_TOKEN, of_service.INVALID_EXTRA),
            *_all(errors.InvalidSettings, _KICKOFF, of_service.INVALID_PROXY),
            *_all(errors.CrewError, _KICKOFF, of_service.NO_CERTIFICATES),
        ),
    ),
    (
        "The connection limits kickoffs",
        "With `max_kickoffs_per_day`: [How many in a day](scale.md#how-many-in-a-day).",
        (
            *_all(errors.BudgetSpent, _KICKOFF, of_tasks.BUDGET_SPENT),
            *_all(errors.InvalidSettings, _KICKOFF, of_tasks.NO_BUDGET),
            *_all(errors.TransientError, _KICKOFF, of_tasks.NOT_COUNTED),
        ),
    ),
    (
        "The output is not what `output_type` says",
        "The result of an execution that has completed is kept: [Results](results.md#when-it-does-not-fit).",
        (
            (of_service.MISFITTING_OUTPUT, errors.InvalidOutput, (*_RUN, "anew", "sensor")),
            (of_service.UNCHECKED_OUTPUT, errors.InvalidOutput, _WAIT),
            (of_service.INVALID_OUTPUT_TYPE, errors.InvalidOutputType, ("kickoff", "sensor")),
        ),
    ),
    (
        "The task has ended before its kickoff",
        "Airflow has ended it, or could not be asked.",
        _all(
            errors.CrewError,
            _NOBODY,
            of_tasks.TOLD_TO_END_BEFORE,
            of_tasks.TIME_WAS_OVER_BEFORE,
            of_tasks.ENDED_BEFORE,
            of_tasks.NO_NOTE,
            of_tasks.NO_MEMORY,
        ),
    ),
    (
        "Somebody asks at a terminal",
        "What `python -m airflow_provider_crew` says besides: [From a terminal](monitoring.md#from-a-terminal).",
        _all(
            errors.CrewError,
            _NOBODY,
            of_service.IS_GOING_ON,
            of_service.IS_PAUSED,
            of_service.HAS_COMPLETED,
            of_service.CONNECTION_NOT_READ_HERE,
        ),
    ),
    (
        "Reasons that stand in the details",
        (
            "They stand below the three lines of another message, whose `Money` and `Next` count. The columns "
            "say what `CrewHook` says, in a program of your own."
        ),
        _all(
            errors.CrewError,
            _NOBODY,
            of_service.UNREADABLE,
            of_service.TOO_LARGE,
            of_service.CONNECTION_IN_DOUBT,
            of_service.INVALID_KICKOFF_ID,
        ),
    ),
)

# What else may stand below a message.
ALSO: dict[str, tuple[str, ...]] = {
    "FAILED": ("At the last poll before, it was at *task 2 of 3, writing (Writer)*.",),
    "LOST_CONTACT": (
        of_tasks.TRIGGERER_ALONE.also,
        of_tasks.TRIGGERER_LACKS_CONNECTION.also,
    ),
}

# What is next where the task itself fills it in.
FILLED_IN: dict[str, End] = {
    "run": of_tasks.RETRY_GOES_ON,
    "before": of_tasks.NOT_RETRIED,
    "sensor": of_tasks.SENSOR_RETRIES,
}

# What a task adds whatever has ended it, and when it does.
BESIDES: tuple[tuple[str, End], ...] = (
    ("The task fails before its kickoff, and the execution of an earlier try goes on.", of_tasks.EARLIER_GOES_ON),
    ("The same, and people have to mend something.", of_tasks.CLEARING_WAITS),
    ("The task fails before its kickoff, and has given up an earlier execution.", of_tasks.EARLIER_IS_GIVEN_UP),
    ("The task fails before its kickoff, and an earlier execution has completed.", of_tasks.EARLIER_IS_KEPT),
    ("The task fails before its kickoff, and an earlier kickoff has no answer.", of_tasks.EARLIER_IS_UNCERTAIN),
    ("The execution of an earlier try was kicked off at another address.", of_tasks.UNKNOWN_BEFORE),
    ("Something else ends the task when its execution has completed.", of_tasks.RETRY_READS),
    ("A sensor has `soft_fail` or `never_fail`.", of_tasks.SKIPPED),
)

EXAMPLES: dict[str, Any] = {
    "execution": "Execution *57a13a6e-…*",
    "id": "*57a13a6e-…*",
    "running": "*57a13a6e-…*",
    "after": " after *4m 10s*",
    "place": ", seen at *task 2 of 3, writing*",
    "said": "*ValueError: the model is overloaded*",
    "lasted": "*10m 0s*",
    "watched": "*24h 0m*",
    "progress": "*task 2 of 3, writing (Writer)*",
    "trouble": "",
    "hint": "",
    "call": "*GET /inputs*",
    "request": "*GET https://my-crew.example/inputs*",
    "told": "*GET https://my-crew.example/inputs answers 503. The service says: …*",
    "host": "*my-crew.example:443*",
    "status": "*503*",
    "kind": "*MemoryError*",
    "why": "*MemoryError*",
    "name": "*inputs*",
    "names": "*topic, audience*",
    "more": "*Given: audience.*",
    "mark": "*by its meta, {…}*",
    "then": "*kicks off anew*",
    "mend": "*Renew the token in the connection.*",
    "connection": "*'crew_default'*",
    "variable": "*AIRFLOW_CONN_CREW_DEFAULT*",
}

_UNPROCESSABLE = "*POST https://my-crew.example/kickoff answers 422. The service says: …*"

# Where another example fits better.
OF_ONE: dict[str, dict[str, str]] = {
    "INVALID_FIELD": {
        "name": "*request_timeout*",
        "description": "*a number of seconds above 0, and not more than a day*",
    },
    "OTHER_INPUTS": {"task": "*report*", "index": "*3*", "dag": "*research*", "run": "*manual__2026-01-01*"},
    "CONNECTION_NOT_READ": {"why": "*Airflow's API server did not answer*"},
    "CONNECTION_NOT_READ_HERE": {"why": "*MetastoreBackend raised OperationalError*"},
    "CONNECTION_IN_DOUBT": {
        "why": "*The connection 'crew_default' cannot be used. There is none of that name. …*"
    },
    "NO_OBJECT": {"kind": "*list*"},
    "NOT_RENDERED": {"why": "*UndefinedError: 'dict object' has no attribute 'topic'*"},
    "NO_JSON": {"path": "*inputs.since*", "kind": "*datetime*"},
    "UNLISTED_INPUT": {"name": "*'topics'*", "meant": " *Is 'topics' meant to be 'topic'?*", "more": ""},
    "LISTED_INPUTS": {"names": "*topic*"},
    "NEEDED_INPUTS": {"names": "*topic*"},
    "INVALID_KICKOFF_ID": {
        "given": "*None*",
        "fault": "*is empty, or no text*",
        "template": "*{{ ti.xcom_pull('kickoff') }}*",
    },
    "INVALID_STATE_ID": {"kind": "*list*"},
    "EMPTY_OPTION": {
        "name": "*restore_from_state_id*",
        "given": "*'None'*",
        "template": "*{{ ti.xcom_pull('first') }}*",
    },
    "TOKEN_REJECTED": {"told": "*GET https://my-crew.example/inputs answers 401. The service says: …*"},
    "TOKEN_NOT_ALLOWED": {
        "call": "*POST /kickoff*",
        "told": "*POST https://my-crew.example/kickoff answers 403. The service says: …*",
    },
    "NOT_FOUND": {"told": "*GET https://my-crew.example/status/57a13a6e-… answers 404. The service says: …*"},
    "RATE_LIMITED": {
        "call": "*POST /kickoff*",
        "told": "*POST https://my-crew.example/kickoff answers 429. The service says: …*",
    },
    "REFUSED": {"call": "*POST /kickoff*", "status": "*422*", "told": _UNPROCESSABLE},
    "REFUSED_FOR_INPUTS": {"told": _UNPROCESSABLE},
    "REDIRECTED": {
        "call": "*POST /kickoff*",
        "status": "*302*",
        "told": "*POST https://my-crew.example/kickoff answers 302.*",
        "target": "*https://moved.example/kickoff*",
    },
    "NO_CREW": {
        "call": "*POST /kickoff*",
        "told": "*POST https://my-crew.example/kickoff answers 404. It begins: …*",
    },
    "UNREADABLE": {
        "call": "*GET status*",
        "fault": "*it is not JSON*",
        "request": "*GET https://my-crew.example/status/57a13a6e-…*",
        "status": "*200*",
        "content_type": "*text/html*",
        "told": " *It begins: '&lt;html&gt;…' (text/html).*",
    },
    "TOO_LARGE": {
        "call": "*GET status*",
        "request": "*GET https://my-crew.example/status/57a13a6e-…*",
        "limit": "*64*",
    },
    "NO_ANSWER": {"reason": "*it was not complete after 60 s (request_timeout)*"},
    "NOT_REACHED": {"reason": "*connection refused*"},
    "NOT_TRUSTED": {"reason": "*its certificate is not accepted (certificate has expired)*"},
    "UNCERTAIN_WITH_ID": {"why": "*The crew answers 503 to POST /kickoff. …*", "kickoff_id": "*57a13a6e-…*"},
    "UNCERTAIN": {"why": "*The crew answers 503 to POST /kickoff. …*"},
    "NO_LONGER_WATCHED": {"why": "*The token may not do this: the crew answers 403 to GET status. …*"},
    "TOKEN_REJECTED_MEANWHILE": {"why": "*The crew does not accept the token: it answers 401 to GET status. …*"},
    "CANNOT_BE_WATCHED": {
        "why": "*The connection 'crew_default' cannot be used. There is no organization token. …*"
    },
    "LOST_CONTACT": {
        "why": "*The crew answers 500 to GET status. …*",
        "hint": " *A run that has failed may answer like that for ever: look into the crew's dashboard.*",
    },
    "WAITED_TOO_LONG": {"trouble": " *At the last poll: no usable answer. …*"},
    "KNOWN_ELSEWHERE": {"elsewhere": "*https://old.example*", "asked": "*https://new.example*"},
    "INVALID_OUTPUT_TYPE": {
        "type": "*my_company.reports.Report*",
        "kind": "*ModuleNotFoundError*",
        "fault": "*No module named 'my_company'*",
    },
    "MISFITTING_OUTPUT": {"why": "*headlines: Field required.*"},
    "UNCHECKED_OUTPUT": {"why": "*output_type raised KeyError.*"},
    "ENDED_WHILE_SENT": {"kind": "*SystemExit*", "why": "*SystemExit*."},
    "NO_MEMORY": {"why": "*ConnectError: connection refused*"},
    "BUDGET_SPENT": {"limit": "*50*"},
    "NO_BUDGET": {"why": "*AirflowRuntimeError: API_SERVER_ERROR: {'status_code': 404, …}*"},
    "NOT_COUNTED": {"why": "*ConnectError: connection refused*"},
    "NO_NOTE": {"why": "*ConnectError: connection refused*"},
    "NO_TRIGGERER": {"why": "*Trigger timeout*"},
    "SKIPPED": {"why": "*soft_fail*"},
}
