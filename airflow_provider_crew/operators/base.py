"""Base classes of operators and the sensor, and checks of their arguments when a DAG is parsed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator, TaskDeferred

from airflow_provider_crew.client.options import SENT_AS, OnInvalidOutput, OnResponseTimeout
from airflow_provider_crew.links.crew import CrewDashboardLink
from airflow_provider_crew.versions import HAS_STORE, NO_RETRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_crew.task.attempt import Attempt
    from airflow_provider_crew.task.task import Task


# A longer time overflows dates in Airflow and its database, and the error would come after the kickoff.
_LONGEST_TIME = 10 * 365 * 86_400.0
# Names in an __init__ besides those of its arguments.
_NO_ARGUMENTS = frozenset({"self", "kwargs", "__class__"})
# Method that Airflow calls if a trigger ended without an event.
TRIGGER_FAILED = "__fail__"


def one_of(choices: object) -> Callable[[object], object]:
    """Return a check that rejects other values than the choices."""

    def check(given: object) -> object:
        if given not in get_args(choices):
            raise ValueError(f"must be one of {', '.join(map(repr, get_args(choices)))}.")
        return given

    return check


def seconds(given: timedelta | float, *, at_least: float = math.ulp(0)) -> float:
    """Return a time in seconds, or reject it."""
    try:
        number = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not at_least <= number <= _LONGEST_TIME:
        least = "above 0" if at_least else "from 0"
        raise ValueError(f"must be a number of seconds {least} and up to ten years, or a timedelta.")
    return number


def seconds_or_none(given: timedelta | float | None, *, at_least: float = math.ulp(0)) -> float | None:
    """Return a time in seconds, or None if none is set."""
    return None if given is None else seconds(given, at_least=at_least)


class CrewTask(BaseOperator):
    """Base class of tasks that start or wait for one execution of a crew."""

    crew_conn_id: str
    operator_extra_links: Collection[BaseOperatorLink] = (CrewDashboardLink(),)
    checks: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "on_invalid_output": one_of(OnInvalidOutput),
        "on_response_timeout": one_of(OnResponseTimeout),
        "timeout": seconds,
        "poll_interval": seconds_or_none,
        "max_outage": seconds_or_none,
        "response_timeout": seconds_or_none,
    }
    """Checks of arguments when the DAG is parsed. Each returns the value that the attribute has."""
    given: Mapping[str, Any] = {}
    """Templated arguments before they are rendered."""
    is_told_to_end = False
    """Whether Airflow is ending the task. An alert of the task is then left to the DAG."""
    _render_error: Exception | None = None
    _attempt: Attempt | None = None

    def _set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """
        Check the arguments, and set an attribute for each.

        :param arguments: ``locals()`` at the beginning of an operator's ``__init__``.
        """
        for name, given in arguments.items():
            if name in _NO_ARGUMENTS:
                continue
            try:
                checked = self.checks[name](given) if name in self.checks else given
            except ValueError as error:
                raise ValueError(f"{self.operator_name}: {name} {error}") from None
            setattr(self, name, checked)
        self.given = {name: getattr(self, name) for name in self.template_fields if hasattr(self, name)}

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """
        Render the templates. If that fails, the attempt fails when it needs them, and reports the cost.

        An attempt that resumes or reattaches does not, and the data behind them may be gone by then. Airflow calls
        only this method for mapped tasks.
        """
        if parent is self:  # Airflow needs a millisecond to store a field, even an unset one
            self.template_fields = [name for name in self.template_fields if getattr(self, name, None) is not None]
        try:
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        except Exception as error:
            if parent is not self:
                raise
            self._render_error = error
            self.log.warning("The templates cannot be rendered: %s", error)

    def execute(self, context: Context) -> Any:
        """Run the task. It may defer."""
        return self._run(context)

    def execute_complete(self, context: Context, **next_kwargs: Any) -> Any:
        """Continue after a deferral, with or without an event."""
        return self._run(context, next_kwargs)

    def _new_attempt(self, context: Context, next_kwargs: Mapping[str, Any] | None) -> Any:
        """Return the attempt of this process."""

    def _steps(self, attempt: Any) -> Any:
        """Take the steps of an attempt, and return its value."""

    def _run(self, context: Context, next_kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run one attempt, or the rest of it after a deferral. Every end without a result goes through here."""
        # The attempt pushes its link as soon as it knows the URL. Airflow would push it again, or an empty one.
        self.operator_extra_links = ()
        attempt: Attempt | None = None
        try:
            attempt = self._attempt = self._new_attempt(context, next_kwargs)
            return attempt.returned(self._steps(attempt), self)
        except (TaskDeferred, AirflowRescheduleException):
            raise
        except BaseException as error:
            end = attempt.end(error) if attempt else self._end_without_attempt(error, context, next_kwargs)
            if end is error:
                raise
            raise end from None  # a chain of tracebacks would hide the message

    def _end_without_attempt(self, error: BaseException, context: Context, next_kwargs: Any) -> BaseException:
        """Return the exception with which a process ends that could not begin its attempt, or continue it."""
        from airflow_provider_crew.task.decide import Next
        from airflow_provider_crew.task.verdict import Facts, verdict

        durable: bool = getattr(self, "durable", True)
        is_new = next_kwargs is None and context["ti"].try_number == 1
        is_sensor = not hasattr(self, "durable")
        facts = Facts(next=Next(durable=durable, is_unreadable=HAS_STORE and not is_new), is_sensor=is_sensor)
        if next_kwargs is not None or is_sensor:  # it has an execution
            facts.phase = "waiting"
            facts.kickoff_id = ((next_kwargs or {}).get("event") or {}).get("kickoff_id", "")
        return verdict(error, facts).exception()

    def _task(self, context: Context, kind: type[Any] | None = None, **more: Any) -> Task:
        """Return the task with the arguments of this operator as options. It has an attribute for each."""
        from airflow_provider_crew.task.task import Options, Task

        kind = kind or Options
        names = [each.name for each in fields(kind) if each.name not in more and hasattr(self, each.name)]
        options = kind(**{name: getattr(self, name) for name in names}, **more)
        return Task(options, context, self.log, is_told_to_end=lambda: self.is_told_to_end)

    def post_execute(self, context: Context, result: Any = None) -> None:
        """Add the execution to the asset events, and note the delivery, after the author's own post_execute."""
        super().post_execute(context, result)
        if attempt := self._attempt:
            attempt.succeeded(self)

    def on_kill(self) -> None:
        """Prevent a kickoff that is not yet sent. The attempt notices, and may cancel its execution."""
        self.is_told_to_end = True
        if self._attempt:
            self._attempt.told_to_end()

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral. If the trigger failed, Airflow's own method would fail the task."""
        if next_method not in {"execute_complete", TRIGGER_FAILED}:  # a subclass has its own
            return super().resume_execution(next_method, next_kwargs, context)
        next_kwargs = dict(next_kwargs or {})
        if next_method == TRIGGER_FAILED:
            next_kwargs.setdefault("error", "its event cannot be read")
        return self.execute_complete(context, **next_kwargs)


class KickoffTask(CrewTask):
    """
    Base class of tasks that start executions.

    ``KickoffOptions`` declares the options of a kickoff. Each of these operators has them in its signature.
    """

    # A task that resumes or reattaches needs only the connection, so that is rendered first.
    template_fields = ("crew_conn_id", "inputs", "webhook_conn_id", *SENT_AS)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "inputs": "json",
        **{name: "json" for name, sent in SENT_AS.items() if sent.kind is Mapping},
    }
    inputs: Any
    _attempt_class = "airflow_provider_crew.task.attempt:Attempt"

    def _set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Check and set the arguments. Reject retries that could start a second execution."""
        super()._set_arguments(arguments)
        # A mapped task gets here only when it runs. After a ValueError, Airflow would retry it.
        if self.retries and not HAS_STORE:
            raise AirflowFailException(f"{self.operator_name}: {NO_RETRIES}")

    @property
    def kickoff(self) -> Any:
        """Options of the kickoff, as ``KickoffOptions``."""
        return {name: getattr(self, name) for name in SENT_AS}

    def kickoff_inputs(self, context: Context) -> Any:  # noqa: ARG002 - the decorator needs it
        """Return the inputs of the kickoff. Not called if the task reattaches."""
        return self.inputs

    def _rendered_inputs(self, context: Context) -> Any:
        if self._render_error:  # never send templates
            raise self._render_error
        return self.kickoff_inputs(context)

    def _new_attempt(self, context: Context, next_kwargs: Mapping[str, Any] | None) -> Any:
        task = self._task(context, compute_inputs=lambda: self._rendered_inputs(context))
        return resolve_name(self._attempt_class)(task, next_kwargs=next_kwargs)
