"""Operator that runs a crew for each row of a table, in one task."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT
from airflow_provider_crew.operators.base import KickoffTask, one_of, seconds_or_none
from airflow_provider_crew.versions import HAS_STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.batch.batch import Batch

_SHARE = re.compile(r"(\d+(\.\d+)?)%")
# The names of as many groups are one entry of less than 64 KB in the task state store.
_MOST_ACTIVE = 2_000


def _max_active(given: object) -> object:
    if not (type(given) is int and 1 <= given <= _MOST_ACTIVE):
        raise ValueError(f"must be a number from 1 to {_MOST_ACTIVE}.")
    return given


def _positive(given: object) -> object:
    if not (given is None or (type(given) is int and given > 0)):
        raise ValueError("must be a positive number, or None.")
    return given


def _max_failed(given: object) -> object:
    is_share = isinstance(given, str) and _SHARE.fullmatch(given)
    if not (given is None or is_share or (type(given) is int and given >= 0)):
        raise ValueError("must be a number, a share such as '5%', or None.")
    return given


class CrewBatchOperator(KickoffTask):
    """
    Run a crew for each row of a table, with a limited number of concurrent executions, and return a manifest.

    The manifest names the file with the result of each row. Each execution is billed. Retrying or clearing the
    task continues the batch: it keeps successful rows and waits for running ones. Clearing reruns failed rows. A
    retry does so only if more rows failed than ``max_failed`` allows. Needs Airflow 3.3.

    Takes the kickoff's arguments of CrewKickoffOperator and the following:

    :param inputs: Inputs of the rows: a list of objects, the result of a task, or the path of a file with one JSON
        object in each line. (templated)
    :param result_path: Folder or prefix in an object store for the results. Each batch needs its own. (templated)
    :param key: Input that names a row: a text or a number. By default its position. A row with another key or
        other inputs is another row.
    :param max_active: Number of concurrent executions.
    :param max_failed: Number of rows that may end without success, or their share of the ended rows, such as
        ``"5%"``. With more, the batch starts no further rows, waits for the running ones and fails. A share stops
        it early only after 50 rows, or after a smaller pilot. ``None``: no limit.
    :param pilot: Number of rows that run first, alone. The others start only if no more of them failed than
        ``max_failed`` allows.
    :param max_tokens: Limit on the tokens of all executions. At the limit, the batch starts no further rows, waits
        for the running ones and fails. An execution whose tokens are unknown counts as an average one. Until one
        reports its tokens, at most four rows run, and after 50 that have reported none, the batch stops.
    :param row_timeout: Seconds from the start of an execution after which its row fails. ``None``: no limit.
    :param timeout: Seconds after which an attempt stops waiting. Default: 24 hours.
    :param rerun: Rows that run again if you clear the task: ``failed`` or ``all``.
    :param check: Function of the inputs and the output of a row. If it returns False, the row is invalid_output.
        It runs in up to 16 threads.
    :param output_type: Type that each output must match, as in CrewRunOperator.
    :param deferrable: Whether to wait in the triggerer instead of a worker, unless rows take two minutes or less
        on average. By default ``[operators] default_deferrable``.
    :param poll_interval: Seconds between two polls of a row, as in CrewRunOperator.
    :param max_outage: Seconds the crew may be unreachable before an attempt ends.
    """

    template_fields = (*KickoffTask.template_fields, "result_path")
    ui_color = "#d9d5ee"
    checks = KickoffTask.checks | {
        "rerun": one_of(Literal["failed", "all"]),
        "max_active": _max_active,
        "max_failed": _max_failed,
        "pilot": _positive,
        "max_tokens": _positive,
        "row_timeout": seconds_or_none,
    }

    def __init__(  # noqa: PLR0913 - keyword arguments for the DAG author
        self,
        *,
        inputs: Sequence[Mapping[str, Any]] | XComArg | str,
        result_path: str,
        key: str | None = None,
        max_active: int = 16,
        max_failed: int | str | None = "5%",
        pilot: int | None = None,
        max_tokens: int | None = None,
        row_timeout: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        rerun: Literal["failed", "all"] = "failed",
        check: Callable[[Mapping[str, Any], Any], bool] | None = None,
        crew_conn_id: str = "crew_default",
        meta: Mapping[str, Any] | None = None,
        task_webhook_url: str | None = None,
        step_webhook_url: str | None = None,
        crew_webhook_url: str | None = None,
        human_input_webhook_url: str | None = None,
        webhooks: Mapping[str, Any] | None = None,
        webhook_conn_id: str | None = None,
        restore_from_state_id: str | XComArg | None = None,
        validate_inputs: bool = True,
        output_type: object = None,
        cancel_on_kill: bool | None = None,
        cancel_on_timeout: bool | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float | None = None,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not HAS_STORE:
            raise ValueError(f"{self.operator_name} needs Airflow 3.3 or later.")
        if pilot and max_failed is None:
            raise ValueError("pilot needs max_failed.")
        self._set_arguments(locals())

    def _steps(self, attempt: Batch) -> Any:
        if self._render_error:
            raise self._render_error
        return attempt.run()

    def _new_attempt(self, context: Context, next_kwargs: Mapping[str, Any] | None) -> Batch:
        from airflow_provider_crew.batch.batch import Batch
        from airflow_provider_crew.batch.state import BatchOptions

        task: Any = self._task(context, BatchOptions)
        return Batch(task, task.options, next_kwargs=next_kwargs or {})
