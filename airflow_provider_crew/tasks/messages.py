"""
What tasks say besides ``service/messages.py``: what ends one, and what each end means for it.

``docs/messages.md`` is written from here, too.
"""

from typing import NamedTuple

from airflow_provider_crew.compat import CLEARING, HOW_TO_FORGET, KEEPING
from airflow_provider_crew.service.messages import Message, Money


class End(NamedTuple):
    """What an end means for its task: what is next, and what else there is to say; ``{mend}``: what to mend."""

    next: str
    also: str = ""
    money: Money | None = None


_FIND_IT = "The crew may be running, and paid for, without anybody watching it."
_GO_ON = "If Airflow retries, or you clear the task, it goes on."
HOW_TO_GIVE_UP = (
    f"To give it up and kick off anew: {HOW_TO_FORGET.format('this task instance')}, then clear the task."
)

# Before, and while, a crew is kicked off.

LOST_ANSWER = Message(
    "An earlier try sent a kickoff and ended before it knew the answer.",
    Money.UNKNOWN,
    details=f"It is not known whether that started an execution. {_FIND_IT}",
)
OTHER_INPUTS = Message(
    "{execution} may be running with the inputs of another row.",
    Money.GOES_ON,
    "Wait for it with a sensor, or delete its record and clear the task.",
    "Task {task} (map index {index}) of {dag}, run {run}, kicked it off before the list of inputs changed. It may "
    "be running, so this try neither waits for it nor kicks off. To read its result: "
    'CrewExecutionSensor(kickoff_id="{id}"). To kick off with the inputs of now, while it may be running: '
    f"{HOW_TO_FORGET.format('this task instance')}, then clear the task. When it has ended, a clear kicks off.",
)
BEGUN_ANEW = Message(
    "This try has kicked off before, and Airflow has begun it anew.",
    Money.GOES_ON,
    details="Airflow could not load its DAG when it was to resume. Find the id of the execution in the log of "
    "this try, or in the crew's dashboard.",
)
ONE_TRY_TOO_MANY = Message(
    "Airflow runs this task once more than its retries allow.",
    Money.UNKNOWN,
    details="It has lost the process of the try before, or the task was cleared while it ran. Nothing is known of "
    f"that try, which may have kicked off. It is not known whether that started an execution. {_FIND_IT}",
)
ENDED_WHILE_SENT = Message(
    "The task was ended by {kind} while its kickoff was under way.",
    Money.UNKNOWN,
    details=f"{{why}} It is not known whether that started an execution. {_FIND_IT}",
)
NO_MEMORY = Message(
    "Airflow does not tell whether an earlier try has kicked off.",
    Money.UNKNOWN,
    "If Airflow retries, or you clear the task, it asks again.",
    "So this try does not kick off. {why}",
)
NO_NOTE = Message(
    "Airflow did not take note of the kickoff to come, so nothing was sent.", Money.NOTHING, _GO_ON, "{why}"
)
BUDGET_SPENT = Message(
    "There were {limit} kickoffs today, and max_kickoffs_per_day allows no more.",
    Money.NOTHING,
    "Wait for midnight (UTC), or raise max_kickoffs_per_day.",
    "The connection {connection} sets that limit. Its kickoffs are counted as runs of the DAG crew_budget.",
)
NO_BUDGET = Message(
    "There is no DAG crew_budget to count its kickoffs.",
    Money.NOTHING,
    "Add the DAG crew_budget, or empty max_kickoffs_per_day.",
    "The connection sets max_kickoffs_per_day, and Airflow has no such DAG, or cannot load it. {why}",
)
NOT_COUNTED = Message(
    "Airflow did not count the kickoff to come, so nothing was sent.", Money.NOTHING, "Try again later.", "{why}"
)
TOLD_TO_END_BEFORE = Message("The task was to end before the crew was kicked off.", Money.NOTHING, _GO_ON)
TIME_WAS_OVER_BEFORE = Message("execution_timeout was over before the crew was kicked off.", Money.NOTHING, _GO_ON)
ENDED_BEFORE = Message(
    "The task was ended by {kind} before the crew was kicked off.", Money.NOTHING, _GO_ON, "{why}"
)
NOT_RENDERED = Message(
    "A template of this task cannot be rendered.",
    Money.NOTHING,
    "Correct the template, or the params.",
    "{why}\n"
    "Params that were given to a run stay as they are: trigger another. If the template names what another task "
    "has returned, clear that task.",
)
EMPTY_OPTION = Message(
    "{name} is set, and renders to nothing: {given}.",
    Money.NOTHING,
    "Correct the template, or what it names.",
    "The template is {template}. If it names what another task has returned, check that task. If you want no "
    "{name}, leave it out, or pass None.",
)
NO_KICKOFF_ID = Message(
    "The kickoff id of this task is not known any more.",
    Money.GOES_ON,
    "Find it in the crew's dashboard, and wait for it with CrewExecutionSensor.",
)
INVALID_KICKOFF_ID = Message(
    "kickoff_id is {given}, which is no kickoff id.",
    Money.UNKNOWN,
    "Give this task what a kickoff has returned, and clear it.",
    "The template is {template}. Did the task that kicks off return one? Map the sensor over a mapped kickoff: "
    ".expand(kickoff_id=kickoff.output).",
)

# After that.

ENDED_AFTER = Message("{execution}: the task was ended by {kind}.", Money.GOES_ON, "{next}", "{why}")
TOLD_TO_END = Message(
    "{execution}: the task is to end.",
    Money.GOES_ON,
    "{next}",
    'The execution cannot be cancelled. To wait for it elsewhere: CrewExecutionSensor(kickoff_id="{id}").',
)
NO_TRIGGERER = Message(
    "{execution} is no longer watched by a triggerer.",
    Money.GOES_ON,
    details="{why}. The triggerer's log says more.",
)

TRIGGERER_ALONE = End(
    "",
    "The triggerer had no usable answer at any poll; the worker of this task had one before. Compare how both "
    "reach the crew.",
)
TRIGGERER_LACKS_CONNECTION = End(
    "",
    "The triggerer does not find the connection; the worker of this task did. Compare what both have of it: "
    "environment variables, secrets backends.",
)

# What an end means for a task that kicks off.

A_RETRY_KICKS_OFF = End("If Airflow retries, or you clear the task, the crew is kicked off.", money=Money.NOTHING)
PEOPLE_MEND_THIS = End("{mend} Then clear the task: a retry would not help.", money=Money.NOTHING)
CLEARING_WAITS = End(f"{{mend}} Then clear the task{KEEPING}: it goes on waiting.")
EARLIER_GOES_ON = End(
    "",
    "This try has started nothing. Execution {running} of an earlier try goes on, as far as is known.",
    Money.GOES_ON,
)
EARLIER_IS_GIVEN_UP = End(
    "",
    "This try has started nothing. Execution {running} of an earlier try is not known to the service. Should it "
    "still wait for a person, it is paid for.",
    Money.UNKNOWN,
)
EARLIER_IS_KEPT = End(
    "",
    "This try has started nothing. Execution {running} of an earlier try has completed. "
    f"A retry, or a Clear{KEEPING}, reads its result.",
    Money.ENDED,
)
EARLIER_IS_UNCERTAIN = End(
    "",
    "This try has started nothing. Whether the kickoff of an earlier try has started an execution is not known.",
    Money.UNKNOWN,
)
CHOSEN_TWICE = End("If Airflow retries, the crew is kicked off again, and may be paid for twice.")
UNCERTAIN = End(
    "Look into the crew's dashboard. The task is not retried; clearing it kicks off anew.",
    "There it can be found {mark}. The task is not retried; clearing it {then}.",
)
FAILED = End("If Airflow retries, or you clear the task, the crew is kicked off again, and paid for again.")
NOT_RETRIED = End(
    'Wait for it with CrewExecutionSensor(kickoff_id="{id}").',
    "The task is not retried, since that would start another.",
)
RETRY_READS = End("If Airflow retries, it reads the result of this execution.")
RETRY_GOES_ON = End(f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}.")
CLEARING_GOES_ON = End(
    f"{{mend}} Then clear the task{KEEPING}: it waits for it again.",
    f"The task is not retried. {CLEARING[0].upper()}{CLEARING[1:]} goes on waiting for the same execution.",
)
UNKNOWN = End(
    f"Answer what the crew asks in its dashboard. Then clear the task{KEEPING}.",
    f"The task is not retried. {CLEARING[0].upper()}{CLEARING[1:]} goes on waiting for the same execution. "
    f"{HOW_TO_GIVE_UP}",
)
UNKNOWN_BEFORE = End("", HOW_TO_GIVE_UP)
MISFIT_IS_KEPT = End(
    f"Mend output_type. Then clear the task{KEEPING}: it checks the same result again.",
    "That costs nothing. The task is not retried, since that would pay for another.",
)
MISFIT_IS_FORGOTTEN = End(
    "Mend output_type, and read the same result again with CrewExecutionSensor.",
    'CrewExecutionSensor(kickoff_id="{id}", output_type=…) reads it, which costs nothing. Clearing this task '
    "kicks off anew. The task is not retried, since that would pay for another.",
)
OUT_OF_REACH = End("The task is not retried; clearing it kicks off anew, and is paid for again.")

# What an end means for a sensor.

SKIPPED = End("The task is skipped, as {why} says.")
SENSOR_FAILED = End("Clear the task that kicked it off, which is paid for again. This task is not retried.")
SENSOR_RETRIES = End("If Airflow retries, or you clear this task, it waits again for the same execution.")
SENSOR_IS_OVER = End("{mend} Clear this task to wait again. It is not retried.")
SENSOR_NEVER_POLLED = End(
    SENSOR_IS_OVER.next, "This task has not polled the execution that it waits for.", Money.UNKNOWN
)
SENSOR_MISFIT = End("Mend output_type, and clear this task: it reads the same result again, for nothing.")
SENSOR_NEVER_SAW_IT = End("If it may wait for a person: give this task human_input=True, and clear it.")
SENSOR_UNKNOWN = End(
    f"Answer what the crew asks in its dashboard. Then clear this task{KEEPING}.",
    f"Clear this task{KEEPING} to wait again. With human_input=True it waits to the end of timeout. To give the "
    f"execution up: {HOW_TO_FORGET.format('the task instance that kicked it off')}, and clear that task, which "
    "kicks off anew.",
)
