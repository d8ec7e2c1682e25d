"""Process of a running task: its execution, its hook, and its access to Airflow."""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import Context

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost, CrewError, InvalidSettings, storable_text
from airflow_provider_crew.client.text import one_line, warn
from airflow_provider_crew.client.watch import Polls
from airflow_provider_crew.compat import asset_kinds, reads_names, show_name
from airflow_provider_crew.durable.progress import TaskProgress
from airflow_provider_crew.durable.record import SharedRecord
from airflow_provider_crew.links.crew import DASHBOARD_KEY

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.hooks.crew import CrewHook

# Rendered value of a template that names a task without a result, or a task that does not exist.
_NOTHING = frozenset({"", "None"})
_SHOWN = 300


def is_nothing(value: Any) -> bool:
    """Whether an option has no value, or the text that Jinja renders no value to."""
    return value is None or (isinstance(value, str) and value.strip() in _NOTHING)


def check_option(kind: type[CrewError], name: str, value: Any, template: Any) -> None:
    """Raise an error of the given kind if an option is set but has no value."""
    is_set = value is not None or template is not None
    if is_set and is_nothing(value):
        raise kind(
            f"{name} is set, but renders to {value!r:.40}. Its template: {template_text(template, value)}.",
            cost=Cost.NONE,
            next_step=f"Fix the template, or check the task whose result it names. To send no {name}, pass None.",
        )


def template_text(template: Any, value: Any) -> str:
    """Return a template for a message. An option that was not rendered is its own template."""
    shown = value if template is None else template
    return one_line(str(shown), _SHOWN) or repr(shown)


log = logging.getLogger(__name__)

_ENDS = {
    errors.ExecutionFailed: "failed",
    errors.ExecutionUnknown: "unknown",
    errors.WaitedTooLong: "timeout",
    errors.LostContact: "lost",
}


class TaskMetrics:
    """
    Metrics of one task. Its methods never fail the task.

    Only backends with tags receive the tags. Plain StatsD has none.
    """

    def __init__(self, crew_conn_id: str, context: Context) -> None:
        ti = context["ti"]
        self._tags = {"crew_conn_id": crew_conn_id, "dag_id": ti.dag_id, "task_id": ti.task_id}

    def kickoff(self, end: Literal["started", "not_taken", "uncertain"]) -> None:
        """Count a kickoff by its outcome."""
        self._count(f"kickoff.{end}")

    def gave_up(self, error: errors.CrewError) -> None:
        """Count a wait that ended without a result."""
        end = next((name for kind, name in _ENDS.items() if isinstance(error, kind)), "broken")
        self.ended(end, error.execution_time if isinstance(error, errors.ExecutionFailed) else None)

    def polls(self, polls: Polls) -> None:
        """Count the polls of an execution."""
        self._count("polls", polls.all)
        self._count("failed_polls", polls.failed)
        self._count("execution.paused", polls.paused)

    def tokens(self, usage: Mapping[str, Any]) -> None:
        """Count the tokens that an execution used."""
        for name in ("prompt", "completion", "total"):
            if isinstance(count := usage.get(f"{name}_tokens"), int) and count > 0:
                self._count(f"tokens.{name}", count)

    def ended(self, end: str, execution_time: float | None) -> None:
        """Count the end of an execution, and record its duration if the crew reports it."""
        self._count(f"execution.{end}")
        if execution_time is not None:
            self._tell("timing", "execution.duration", execution_time)

    def _count(self, name: str, by: int = 1) -> None:
        if by:
            self._tell("incr", name, by)

    def _tell(self, how: Literal["incr", "timing"], name: str, value: float) -> None:
        try:
            from airflow.providers.common.compat.sdk import Stats

            measured = timedelta(seconds=value) if how == "timing" else value
            getattr(Stats, how)(f"crew.{name}", measured, tags=self._tags)
        except Exception as error:  # noqa: BLE001 - metrics are best effort
            warn(log, f"Metrics were not sent. The task continues: {error}")


# Keyword argument of a resumed task: its name before the deferral.
CARRIED_NAME = "map_index_name"

_TEMPLATE = "map_index_template"
_NAME = "crew_map_index_name"
# Longest name that Airflow's database can store.
_LONGEST = 250


class MappedName:
    """
    Rendered ``map_index_template`` of a mapped task.

    Airflow renders the template after the task's work. If that fails, the task fails, and a retry would run the
    crew again. After a deferral, even a valid template fails if it needs variables that a function set in the
    context before. So this class renders the template as soon as possible, and again at the end. It replaces the
    template with one that always renders to the same name.
    """

    def __init__(self, log: Any, context: Context, carried: dict[str, Any]) -> None:
        self._log = log
        self._context: Any = context
        self._carried = carried
        self._template = context.get(_TEMPLATE)
        self._stands = CARRIED_NAME in carried
        self._fault: Exception | None = None
        if self._template is not None:
            self.render()

    def render(self) -> None:
        """Render the name with the current context, unless an earlier process has set it."""
        if self._template is None:
            return
        if not self._stands:
            self._try_to_render()
        self._leave_to_airflow()

    def recall(self, name: str) -> None:
        """Use the name of an earlier attempt, because this one does not call the function that sets it."""
        if name and self._template is not None and not self._stands:
            self._carried[CARRIED_NAME] = name
            self._stands = True
            self._leave_to_airflow()

    def finish(self) -> None:
        """Render the name for the last time, and log a warning if that never succeeded."""
        self.render()
        if self._fault and not self.text:
            warn(
                self._log,
                f"map_index_template cannot be rendered: {self._fault}. The task is shown by its number.",
            )

    @property
    def text(self) -> str:
        """Rendered name, or an empty string."""
        return str(self._carried.get(CARRIED_NAME, ""))

    def _try_to_render(self) -> None:
        try:
            # A native environment may render the template to something other than a string.
            environment = self._context["dag"].get_template_env(force_sandboxed=True)
            text = environment.from_string(self._template).render(self._context)
        except Exception as error:  # noqa: BLE001 - a user's template may raise anything
            self._fault = error
        else:
            if name := storable_text(text)[:_LONGEST]:
                self._carried[CARRIED_NAME] = name

    def _leave_to_airflow(self) -> None:
        context, name = self._context, self.text
        context[_TEMPLATE] = None
        if not name:
            return
        try:
            environment = context["dag"].get_template_env(force_sandboxed=True)
            context[_NAME] = repr(name) if reads_names(context["dag"]) else name
            context[_TEMPLATE] = f"{environment.variable_start_string} {_NAME} {environment.variable_end_string}"
            show_name(context["ti"], name)
        except Exception as error:  # noqa: BLE001 - rendering the name is best effort
            warn(self._log, f"The name of this mapped task was not sent to Airflow: {error}")


# Keyword argument of a resumed task: asset event extras set before the deferral, by number of the outlet.
CARRIED_EXTRAS = "outlet_extras"


class OutletEvents:
    """
    Asset events of a task's outlets.

    Airflow sends them after the task has succeeded. The execution is billed by then, so no method fails the task.
    """

    def __init__(self, log: Any, context: Any, carried: dict[str, Any]) -> None:
        self._log = log
        self._context = context
        self._carried = carried

    def carry(self) -> None:
        """Save the extras for the process that resumes, which starts with empty events."""
        try:
            extras = {str(number): event.extra for number, event in self._events() if event.extra}
            if extras:
                self._carried[CARRIED_EXTRAS] = json.dumps(extras)
        except Exception as error:  # noqa: BLE001 - a user's extras may contain any object
            warn(self._log, f"The extra of an outlet event is lost by the deferral: {error}")

    def tell(self, execution: dict[str, Any]) -> None:
        """Add the execution's values to the extras. A user's extra with the same name takes precedence."""
        try:
            carried = json.loads(self._carried.get(CARRIED_EXTRAS, "{}"))
            for number, event in self._events():
                event.extra = {**execution, **carried.get(str(number), {}), **event.extra}
        except Exception as error:  # noqa: BLE001
            warn(self._log, f"The execution was not added to the outlet events: {error}")

    def _events(self) -> Iterator[tuple[int, Any]]:
        outlets = self._context.get("outlets") or ()
        for number, outlet in enumerate(outlets):
            if isinstance(outlet, asset_kinds()):
                yield number, self._context["outlet_events"][outlet]


# Keyword arguments that any operator's process passes to the one that resumes.
CARRIED = (CARRIED_NAME, CARRIED_EXTRAS)
# Values of a result in the asset event extras, besides the kickoff ID.
_TOLD_TO_OUTLETS = ("usage", "execution_time")


@dataclass
class RunningTask:
    """
    One attempt of a task in the current process.

    :param log: Logger of the task.
    :param context: Airflow's context of the task.
    :param crew_conn_id: Connection to the crew.
    :param token_type: Token to use. ``None`` uses the connection's setting.
    :param is_told_to_end: Whether Airflow is stopping the task.
    :param execution: Kickoff ID of the task's execution. ``None`` until it is known.
    :param record: Kickoff record. ``None`` for a sensor.
    :param carried: Plain data that the next process receives when the task resumes, besides the event.
    :param templates: Arguments of the operator before they were rendered.
    :param waits_again: Next step with which this task can wait again, for messages. Empty if there is none.
    :param has_ended: Whether the execution has ended.
    :param result: Result of the execution as the task returns it.
    """

    log: Any
    context: Context
    crew_conn_id: str
    token_type: "TokenType | None"
    is_told_to_end: bool = False
    execution: str | None = None
    record: SharedRecord | None = None
    carried: dict[str, Any] = field(default_factory=dict)
    templates: Mapping[str, Any] = field(default_factory=dict)
    waits_again: str = ""
    has_ended: bool = False
    result: dict[str, Any] = field(default_factory=dict)
    _link: str | None = None

    def __post_init__(self) -> None:
        self.name = MappedName(self.log, self.context, self.carried)
        self.outlets = OutletEvents(self.log, self.context, self.carried)

    @property
    def ti(self) -> Any:
        """Task instance."""
        return self.context["ti"]

    @property
    def started_at(self) -> float:
        """Start time of this attempt."""
        started_at = self.ti.start_date  # Airflow 2 does not set it in dag.test()
        return started_at.timestamp() if started_at else time.time()

    @cached_property
    def hook(self) -> "CrewHook":
        """Hook for the connection, created on first use. A task whose trigger returns the result needs none."""
        from airflow_provider_crew.hooks.crew import CrewHook

        self.check_connection()
        return CrewHook(self.crew_conn_id, token_type=self.token_type)

    def check_connection(self) -> None:
        """Raise InvalidSettings if crew_conn_id has rendered to nothing."""
        # There is no crew without a connection, so it counts as set even if the author passes None.
        template = self.templates.get("crew_conn_id") or ""
        check_option(InvalidSettings, "crew_conn_id", self.crew_conn_id, template)

    @cached_property
    def metrics(self) -> TaskMetrics:
        """Metrics of this task."""
        return TaskMetrics(self.crew_conn_id, self.context)

    @cached_property
    def progress(self) -> TaskProgress:
        """Progress of the execution in XCom."""
        return TaskProgress(self.ti, self.log, self.started_at)

    def finish(self) -> None:
        """Set the task's name and its asset event extras for Airflow."""
        self.name.finish()
        told = {name: self.result[name] for name in _TOLD_TO_OUTLETS if name in self.result}
        self.outlets.tell({"kickoff_id": self.execution, **told})

    def warn(self, text: str) -> None:
        """Log a warning."""
        warn(self.log, text)

    def push_xcom(self, key: str, value: Any, *, what: str) -> None:
        """Push a value to XCom. An error is only logged, because the execution is billed already."""
        try:
            self.ti.xcom_push(key=key, value=value)
        except Exception as error:  # noqa: BLE001
            self.warn(f"{what} was not pushed to XCom: {error}")

    def push_link(self, kickoff_id: str | None = None) -> None:
        """
        Push the dashboard URL to XCom, unless this process has pushed the same one.

        The URL of an execution contains its kickoff ID. Each attempt pushes it, including one that reattaches.
        """
        try:
            url = self.hook.connection.page_of(kickoff_id)
        except Exception:  # noqa: BLE001 - the next use of the connection raises the error
            return
        if url and url != self._link:
            self._link = url
            self.push_xcom(DASHBOARD_KEY, url, what="Link to the crew's page")

    def end(self) -> None:
        """Log that the execution continues while Airflow stops the task. On Airflow 3, the task may yet finish."""
        self.is_told_to_end = True
        if self.record:
            self.record.save_again()
        if self.execution:
            step = self.waits_again or f'Wait for it with CrewExecutionSensor(kickoff_id="{self.execution}").'
            event = f"Task is being stopped. Execution {self.execution} continues."
            self.log.warning("%s", self.about_its_execution(event, step))

    def about_its_execution(self, event: str, next_step: str) -> CrewError:
        """Return an error about the execution, with its cost, if something other than the crew ends the task."""
        cost = Cost.ENDED if self.has_ended else Cost.RUNNING
        return CrewError(event, cost=cost, next_step=next_step, kickoff_id=self.execution or "")
