"""
What docs/messages.md says of the warnings with which a task goes on.

Each is named by its text in the code, with ``{}`` for what is filled in: ``tests/message_texts.py`` finds it.
"""

from __future__ import annotations

from typing import NamedTuple

ID = "57a13a6e-…"
_REFUSED = "the XCom backend is full"
_AWAY = "connection refused"

NOTHING_YET = "Nothing is paid for yet."
ONCE = "The execution is paid for once; nothing starts another."
TWICE = "**Two executions may be paid for.**"
AS_BEFORE = "It changes nothing."
ALREADY = "None: the execution is over, and paid for."


class Note(NamedTuple):
    """An example of each thing that is filled in, why the warning comes, and what to do."""

    examples: tuple[str, ...]
    cause: str
    money: str
    do: str


# By heading, the commonest first.
WARNINGS: dict[str, dict[str, Note]] = {
    "Warnings while a task waits": {
        "Execution {}: no usable answer. The wait goes on {}. {} The execution goes on, as far as is known.": Note(
            (ID, "for up to 10m 0s", "The crew answers 503 to GET status."),
            "The crew is down or out of reach, or its answer cannot be read.",
            ONCE,
            "Nothing, while it is short. After `max_outage` the wait ends.",
        ),
        "Execution {}: the crew is paused: it waits for a person's answer. It is paid for. The "
        "wait goes on.": Note(
            (ID,), "The crew has asked a person something.", ONCE, "Answer it in the crew's dashboard."
        ),
        "Execution {}: the service does not know it. A crew that waits for a person's answer reads like this: it "
        "may be alive, and it is paid for. The wait goes on {}.": Note(
            (ID, "for up to 10m 0s"),
            "The crew waits for a person, or the service has lost the execution.",
            ONCE,
            "Look into the crew's dashboard, and answer what it asks. If your crew asks people, set "
            "`human_input=True`.",
        ),
        "Execution {}: {}. It is read anew. {} The execution goes on. The connection is read anew before the next "
        "poll, in case the token was rotated; giving up after {}.": Note(
            (ID, "the crew does not accept the token", "The crew does not accept the token: …", "2m 0s"),
            "The token was rotated or revoked while the crew was at work.",
            ONCE,
            "Put the new token into the connection.",
        ),
        "The connection {} could not be read anew: {}": Note(
            ("'crew_default'", "Airflow's API server did not answer"),
            "The token was rejected, and Airflow does not give out the connection. The old token is tried on.",
            ONCE,
            "See that Airflow's API server or secrets backend answers.",
        ),
        "Execution {}: its state is {}, which is not known.": Note(
            (ID, "'reviewing'"), "The service has a state that this version does not know.", ONCE, "Nothing."
        ),
        "It is taken for still going.": Note(
            (), "It follows the warning above: the task waits on.", ONCE, "If it stays so, upgrade this package."
        ),
        "Execution {}: no triggerer has ended the wait in time.": Note(
            (ID,),
            "No triggerer runs, or it has too much to do. The task polls once by itself.",
            ONCE,
            "Start a triggerer.",
        ),
        "The trigger failed:\n{}": Note(
            ("Traceback …",), "The trigger broke. The task polls once by itself.", ONCE, "Read the traceback."
        ),
        "Execution {}: the task's templates cannot be rendered again.\nWaiting does not need them: {}": Note(
            (ID, "'report' is undefined"),
            "What the templates were made of is gone when the task resumes.",
            ONCE,
            "Nothing.",
        ),
        "What was seen of the execution before cannot be read: {}": Note(
            (_AWAY,),
            "Airflow's task state store fails. The sensor watches as if for the first time.",
            ONCE,
            "Nothing.",
        ),
        "What was seen of the execution cannot be kept for the next process: {}": Note(
            (_AWAY,), "Airflow's task state store fails. The next poll begins anew.", ONCE, "Nothing."
        ),
        "Execution {}: no longer watched, interrupted.": Note(
            (ID,), "The program that waits with `CrewHook` was interrupted.", ONCE, "See the next warning."
        ),
        "It goes on and is paid for. Wait for it again with its kickoff id; do not kick off again.": Note(
            (), "It follows the warning above.", ONCE, '`CrewHook().wait("…")`, or a `CrewExecutionSensor`.'
        ),
        "How the execution is doing could not be left in XCom. The task goes on: {}": Note(
            (_REFUSED,), "The XCom backend fails. The tab Crew shows less.", ONCE, "Mend the XCom backend."
        ),
        "How executions are doing could not be left in XCom. They are watched on: {}": Note(
            (_REFUSED,),
            "The XCom backend fails in the triggerer. The tab Crew shows less.",
            ONCE,
            "Mend the XCom backend, or set `progress_xcom = False`.",
        ),
        "No trigger leaves in XCom how its execution is doing: {}": Note(
            ("it is neither true nor false",),
            "The triggerer cannot read `progress_xcom`, in the section `[crew]` of its configuration.",
            ONCE,
            "Set it to True or False.",
        ),
    },
    "Warnings before a kickoff": {
        "{} Again in {} s.": Note(
            ("The crew answers 503 to GET /inputs.", "2.0"),
            "The call failed in a way that may pass, and it is repeated.",
            NOTHING_YET,
            "Nothing.",
        ),
        "It may be waking up after a quiet period, and is given {} minutes for that.": Note(
            ("5",), "A deployed crew sleeps when nobody uses it.", NOTHING_YET, "Nothing."
        ),
        "The crew does not list the input {}.{} It is sent all the same.": Note(
            ("'tonne'", " Is 'tonne' meant to be 'tone'?"),
            "The name is not among those that the crew lists.",
            "What starts is paid for, perhaps without that input.",
            'Correct the name. `validate_inputs="strict"` refuses such kickoffs.',
        ),
        "The crew lists inputs that are not given: {}. A crew refuses the kickoff then, and nothing starts; a "
        "flow runs on its defaults.": Note(
            ("audience",),
            "The crew lists an input that the task does not give.",
            "A flow is paid for.",
            "Give it.",
        ),
        "The input 'id' is the deprecated way to restore a flow's state, and mixes up two runs: use "
        "restore_from_state_id.": Note(
            (), "`inputs` has an `id`.", "What starts is paid for.", "Use `restore_from_state_id`."
        ),
        "The inputs are not checked, since the crew does not tell which it takes.\n{}": Note(
            ("There is no crew at this address: it answers 404 to GET /inputs. …",),
            "The crew gives no list of inputs. The kickoff is sent all the same.",
            "What starts is paid for.",
            "Nothing, or `validate_inputs=False`.",
        ),
        "This task has retries, and its tries do not know of each other ({}). If it dies after the kickoff, a "
        "retry starts, and pays for, another execution. CrewKickoffOperator with retries=0, and then "
        "CrewExecutionSensor with retries, rules that out.": Note(
            ("Airflow can remember a kickoff from 3.3 on",),
            "Airflow is older than 3.3, or the task has `reattach=False`.",
            TWICE,
            "Use the two tasks that it names.",
        ),
        "Airflow's API server does not answer, and is asked again: {}": Note(
            (_AWAY,),
            "Airflow's API server is away. A kickoff waits for it, for up to two minutes.",
            AS_BEFORE,
            "See that it runs.",
        ),
        "Airflow was not told the name of this mapped task: {}": Note(
            (_AWAY,), "Airflow's API server is away. The task is shown by its number.", AS_BEFORE, "Nothing."
        ),
    },
    "Warnings about an earlier kickoff, or the next": {
        "An earlier try sent a kickoff and ended before it knew the answer.\nIt is kicked off anew, {}.\n"
        "It is not known whether that try has started an execution: two may be paid for.": Note(
            ("because the task was cleared",),
            'The task was cleared after it had said so, or it has `on_uncertain_kickoff="retry"`.',
            TWICE,
            "Look into the crew's dashboard for the earlier one.",
        ),
        "Airflow runs this task once more than its retries allow.\nIt is kicked off anew, as "
        "on_uncertain_kickoff='retry' says.\n"
        "It is not known whether that try has started an execution: two may be paid for.": Note(
            (),
            "Airflow has lost the process of the try before, or the task was cleared while it ran.",
            TWICE,
            "Look into the crew's dashboard for the earlier one.",
        ),
        "Execution {} of an earlier try is not known to the service, and was kicked off longer ago than "
        "forget_after. The task was cleared: the crew is kicked off anew. Should the earlier one still wait for a "
        "person, two are paid for.": Note(
            (ID,),
            "The kickoff of the earlier try is older than `forget_after`.",
            TWICE,
            "Look into the dashboard.",
        ),
        "This task may have been cleared, and Airflow may have forgotten what the task remembered, as it does "
        "unless Keep task state is ticked. The crew is kicked off. An execution of an earlier try may go on, "
        "and is paid for.": Note(
            (),
            "From Airflow 3.4 on a Clear makes Airflow forget.",
            TWICE,
            "Look into the dashboard. Next time tick **Keep task state and resume**.",
        ),
        "Execution {}: kicked off by an earlier try, and the service does not know it. A crew that waits for a "
        "person's answer reads like this: it may be alive, and it is paid for. To give it up and kick off anew: "
        "on the page of this task instance, under Storage, Task State Store, delete crew_kickoff, then clear the "
        "task.": Note(
            (ID,), "The crew waits for a person, or the service has lost the execution.", ONCE, "Answer the crew."
        ),
        "Execution {}: it is not known how it is doing.\n{}": Note(
            (ID, "The crew answers 503 to GET status. …"),
            "This try goes on with an earlier execution, and the crew does not answer.",
            ONCE,
            "Nothing: the task waits.",
        ),
        "What this task remembers of an earlier kickoff cannot be read. It is taken for one that was sent and "
        "never answered.\n{}": Note(
            ("{'kickoff_id': ['57a13a6e-…']}",),
            "`crew_kickoff` in the Task State Store was edited, or a newer version wrote it.",
            "Not known.",
            "Look into the crew's dashboard.",
        ),
        "Execution {}: its kickoff record cannot be read in full.\n{}": Note(
            (ID, "{'end': 'cancelled'}"),
            "A newer version wrote the record, or `crew_kickoff` in the Task State Store was edited.",
            ONCE,
            "Nothing. The task asks the service about the execution.",
        ),
        "Execution {}: its inputs are not those that the task has now. The task returns the result for the inputs "
        "of the kickoff.": Note(
            (ID,),
            "An upstream task, a variable or the DAG has changed since the kickoff.",
            ONCE,
            "For a result with the inputs of now, clear the task again when the execution has ended.",
        ),
        "What this task remembers of its kickoff cannot be read: {}": Note(
            (_AWAY,), "Airflow does not say what the task remembers, when it resumes.", ONCE, "Nothing."
        ),
        "Airflow does not take what there is to remember. A retry of this task will not know.\n{}: {}": Note(
            ("KickoffRecord(…)", _AWAY),
            "Airflow's API server or its database fails.",
            "The execution is paid for once: where a retry could pay again, there is none.",
            "See that Airflow's API server answers.",
        ),
        "Execution {}: the next try cannot be told of it: {}": Note(
            (ID, _AWAY),
            "The task was cleared while its kickoff was under way, and Airflow's API server is away.",
            "**The next try may not know of the execution, which is paid for.**",
            "Keep the kickoff id. Look into the crew's dashboard before you clear the task.",
        ),
        "Interrupted while a kickoff was under way. It is not known whether the kickoff started an "
        "execution.": Note(
            (),
            "The process was told to end before the answer came.",
            "Not known.",
            "Look into the crew's dashboard before you kick off again.",
        ),
    },
    "Warnings at the end, when there is a result": {
        "Execution {}: its output looks like JSON, and is none.\n{}. output_json is None.": Note(
            (ID, "Expecting ',' delimiter, in line 1, column 20"),
            "The crew's model wrote broken JSON.",
            ALREADY,
            "Tell the crew how to write it. With `output_type` the task fails instead.",
        ),
        "What the execution has put out could not be told here: {}": Note(
            ("AirflowConfigException",),
            "The setting `log_output` cannot be read, or the log failed.",
            ALREADY,
            "Correct the setting. The result is in XCom.",
        ),
        "{} could not be pushed to XCom.\n{}": Note(
            (f"Execution {ID}: its usage", _REFUSED), "The XCom backend fails.", ONCE, "Mend the XCom backend."
        ),
        "map_index_template cannot be rendered: {}. The task is shown by its number.": Note(
            ("'no_such_name' is undefined",), "The template is wrong.", ALREADY, "Correct the template."
        ),
        "The events of the outlets do not tell of the execution: {}": Note(
            ("…",),
            "What a function has put into `outlet_events` has another form.",
            ALREADY,
            "Correct the function.",
        ),
        "What is in the events of the outlets is lost by the deferral: {}": Note(
            ("Object of type datetime is not JSON serializable",),
            "A function has put something into `outlet_events` that is no JSON.",
            ONCE,
            "Put JSON data there.",
        ),
        "Airflow's statistics do not take what happened to an execution. The task goes on: {}": Note(
            ("…",), "The backend of `[metrics]` fails.", ONCE, "Mend the backend."
        ),
    },
}

# What an operator refuses when Airflow parses a DAG, with an example of each thing that is filled in.
REFUSED: dict[str, tuple[str, ...]] = {
    "{}: {} must be a number of seconds {} and up to ten years, or a timedelta.": (
        "CrewRunOperator",
        "poll_interval",
        "above 0",
    ),
    "{}: validate_inputs must be True, False or 'strict'.": ("CrewRunOperator",),
    "{}: on_uncertain_kickoff must be 'fail' or 'retry'.": ("CrewRunOperator",),
    "{}: on_invalid_output must be 'fail' or 'retry'.": ("CrewRunOperator",),
    "{}: output_type must be a type, or the import path of one, and is of type {}.": ("CrewRunOperator", "dict"),
    "{}: output_type as text must be an import path, as 'my_company.reports.Report' is.": ("CrewRunOperator",),
    "{}: output_type takes nothing from another task.": ("CrewRunOperator",),
    "{}: multiple_outputs splits a mapping, and a kickoff id is none.": ("CrewKickoffOperator",),
}
