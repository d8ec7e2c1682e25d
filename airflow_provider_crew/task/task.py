"""Task in the current process: its arguments, Airflow's context, and the connection."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.options import (
    MAX_OUTAGE,
    TIMEOUT,
    KickoffOptions,
    OnInvalidOutput,
    OnResponseTimeout,
)
from airflow_provider_crew.client.text import one_line, warn
from airflow_provider_crew.task.result import adapter_of

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.crew import CrewHook

_SHOWN = 300
# Seconds before execution_timeout at which a wait ends, so that the task can say so or cancel the execution.
_TIME_TO_END = 2.0
_TIME_TO_CANCEL_AT_TIMEOUT = 10.0
# Share of a short execution_timeout that is reserved for that.
_LARGEST_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    Arguments of an operator after rendering. See the operators for their meaning.

    :param given: Templated arguments before they were rendered, by name.
    :param compute_inputs: Returns the inputs of a kickoff. Not called by an attempt that reattaches.
    """

    crew_conn_id: str
    cancel_on_kill: bool | None = None
    cancel_on_timeout: bool | None = None
    do_xcom_push: bool = True
    execution_timeout: timedelta | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    # Of a kickoff
    compute_inputs: Callable[[], Any] = dict
    inputs: Any = None
    kickoff: KickoffOptions = field(default_factory=KickoffOptions)
    webhook_conn_id: str | None = None
    validate_inputs: bool = True
    durable: bool = True
    # Of a wait
    deferrable: bool = False
    poll_interval: float | None = None
    timeout: float = TIMEOUT
    max_outage: float | None = MAX_OUTAGE
    human_input: bool | None = False
    log_output: bool = True
    output_type: object = None
    on_invalid_output: OnInvalidOutput = "fail"
    # Of answers from Airflow
    response_timeout: float | None = None
    on_response_timeout: OnResponseTimeout = "leave"
    notifiers: Sequence[Callable[[Any], object]] = ()
    assigned_users: Sequence[Mapping[str, str]] = ()


def is_nothing(value: Any) -> bool:
    """Whether an option has no value, or the text that Jinja renders no value to."""
    return value is None or (isinstance(value, str) and {*value.split()} <= {"None"})


def rendered_to(name: str, value: Any, template: Any) -> str:
    """Return the message about an argument without a value. One that was not rendered is its own template."""
    shown = one_line(str(template), _SHOWN) or repr(template)
    check = "Check that the task it reads from returned a value."
    return f"`{name}` rendered to {value!r:.40}. Template: {shown}. {check}"


def reject_nothing(name: str, value: Any, template: Any) -> None:
    """
    Reject inputs in which something is missing that the author took from a template or another task.

    Data that a task returned may hold anything, so it is not searched.
    """
    if isinstance(template, Mapping) and isinstance(value, Mapping):
        for key in [key for key in template if key in value]:
            reject_nothing(f"{name}.{key}", value[key], template[key])
    elif isinstance(template, list | tuple) and isinstance(value, list | tuple):
        reject_nothing(name, dict(enumerate(value)), dict(enumerate(template)))
    elif is_nothing(value) and not is_nothing(template):
        raise errors.InvalidInputs(rendered_to(name, value, template))


class Task:
    """
    Task in the current process.

    :param options: Arguments of the operator, after rendering.
    :param context: Airflow's context of the task.
    :param log: Logger of the task.
    :param is_told_to_end: Whether Airflow is ending the task.
    """

    def __init__(
        self,
        options: Any,
        context: Any,
        log: Any,
        *,
        is_told_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self.options: Options = options
        self.context = context
        self.ti: Any = context["ti"]
        self.log = log
        self.is_told_to_end = is_told_to_end
        self.began = time.monotonic()
        """Start of the time that execution_timeout limits."""

    @property
    def started_at(self) -> float:
        """Start time of this attempt."""
        started_at = self.ti.start_date
        return float(started_at.timestamp()) if started_at else time.time()

    @cached_property
    def hook(self) -> "CrewHook":
        """Hook for the connection, created at first use. A task whose trigger returns the result needs none."""
        from airflow_provider_crew.hooks.crew import CrewHook

        self._check_option("crew_conn_id", self.options.crew_conn_id, errors.InvalidSettings, is_set=True)
        options = self.options
        return CrewHook(options.crew_conn_id, webhook_conn_id=options.webhook_conn_id)

    @property
    def retries_left(self) -> int:
        """Number of retries that Airflow has left. With a retry policy (Airflow 3.3), none is certain."""
        has_policy = getattr(getattr(self.ti, "task", None), "retry_policy", None) is not None
        return 0 if has_policy else max((self.ti.max_tries or 0) - self.ti.try_number + 1, 0)

    def origin(self) -> dict[str, Any]:
        """Return the meta of a kickoff. It identifies a lost execution, since the crew lists none."""
        names = ("dag_id", "run_id", "task_id", "map_index")
        loop = self.context.get("loop")  # Airflow 3.4
        key = getattr(self.context.get("dag_run"), "partition_key", None)  # Airflow 3.2
        more = ({"iteration": loop.index} if loop else {}) | ({"partition_key": key} if key else {})
        return {name: getattr(self.ti, name) for name in names} | more | {"try_number": self.ti.try_number}

    @cached_property
    def inputs(self) -> Any:
        """Inputs of a kickoff. A decorated function is called for them."""
        return self.options.compute_inputs()

    @cached_property
    def meta(self) -> str:
        """Part of the meta that names the task, as it is sent. Empty if the DAG author has set another."""
        if self.options.kickoff.get("meta") is not None:
            return ""
        return json.dumps(self.origin()).rpartition(', "try_number"')[0].removeprefix("{")

    def check(self) -> None:
        """Reject options that cannot work, before the inputs are computed and anything is sent."""
        _ = self.hook
        for name, value in self.options.kickoff.items():
            self._check_option(name, value, errors.InvalidInputs)
        self._check_option("webhook_conn_id", self.options.webhook_conn_id, errors.InvalidSettings)
        self._check_option("result_path", getattr(self.options, "result_path", None), errors.InvalidInputs)
        self.check_output_type()

    def check_output_type(self) -> None:
        """Reject an output type that is unusable."""
        if self.options.output_type is not None:
            adapter_of(self.options.output_type)

    def _check_option(self, name: str, value: Any, kind: type[errors.CrewError], *, is_set: bool = False) -> None:
        """Raise an error if an option was given to the operator, but renders to nothing."""
        template = self.options.given.get(name)
        if is_nothing(value) and (is_set or value is not None or template is not None):
            raise kind(rendered_to(name, value, self.options.given.get(name, value)))

    def cancels_on(self, event: Literal["kill", "timeout"]) -> bool:
        """Whether to cancel an execution on a kill or a timeout. The connection has the default."""
        name = f"cancel_on_{event}"
        if (own := getattr(self.options, name)) is not None:
            return bool(own)
        with suppress(Exception):  # the next use of the connection raises the error
            return bool(getattr(self.hook.connection, name))
        return False

    @property
    def limit(self) -> str:
        """Name of the limit that ends a wait."""
        own = self.options.execution_timeout
        return "execution_timeout" if own and own.total_seconds() < self.options.timeout else "timeout"

    def deadline(self, *, time_to_end: float = _TIME_TO_END, share: float = _LARGEST_SHARE) -> float:
        """
        Return the time at which to stop waiting, as a timestamp.

        :param time_to_end: Seconds before execution_timeout that the end of the wait needs.
        :param share: Share of execution_timeout that it takes at most.
        """
        deadline, limit = time.time() + self.options.timeout, self.options.execution_timeout
        if limit is None:
            return deadline
        allowed = limit.total_seconds()
        margin = max(time_to_end, _TIME_TO_CANCEL_AT_TIMEOUT if self.cancels_on("timeout") else 0.0)
        return min(deadline, self.started_at + allowed - min(margin, allowed * share))

    def page(self, kickoff_id: str | None = None) -> str | None:
        """Return the URL of an execution, or of the crew, in the crew's dashboard."""
        with suppress(Exception):  # the next use of the connection raises the error
            return self.hook.connection.page_of(kickoff_id)
        return None

    def warn(self, text: str) -> None:
        """Log a warning."""
        warn(self.log, text)
