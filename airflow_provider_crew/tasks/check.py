"""What is looked at before a kickoff: nothing of it costs anything, and a mistake that it finds would have."""

import tenacity

from airflow_provider_crew.operators.arguments import ValidateInputs
from airflow_provider_crew.service import errors
from airflow_provider_crew.service.limits import WAKING_UP
from airflow_provider_crew.service.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.service.repeating import repeating
from airflow_provider_crew.tasks.running import RunningTask


def check_inputs(task: RunningTask, request: KickoffRequest, validate: ValidateInputs) -> None:
    """
    Raise what would keep a kickoff from starting, and warn of what may be wrong.

    The crew is asked which inputs it takes in any case: one that sleeps wakes up by that.
    """
    policy = tenacity.Retrying(**repeating("GET /inputs", wake_up_within=WAKING_UP))
    try:
        known = policy(task.hook.get_conn().inputs)
    except (errors.NotAllowed, errors.Refused) as error:
        if validate:
            task.warn(f"Inputs are not checked, because the crew does not list them. {error.event}")
    except (errors.TransientError, errors.AnswerTooLarge) as error:
        # If /inputs is unreadable, the kickoff ID would be unreadable as well, and its execution billed and lost.
        if validate or (isinstance(error, errors.TransientError) and error.may_be_waking_up):
            raise
    else:
        doubts = compare_inputs(request.inputs, known, strict=validate == "strict") if validate else []
        for doubt in doubts:
            task.warn(doubt)
