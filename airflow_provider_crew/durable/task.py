"""A task in its process: what it asks Airflow and the crew for, and which execution it is about."""

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
from airflow_provider_crew.durable.record import KickoffMemory
from airflow_provider_crew.links.crew import DASHBOARD_KEY

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.hooks.crew import CrewHook

# What a template makes of a task that has returned nothing, or that does not exist.
_NOTHING = frozenset({"", "None"})
_SHOWN = 300


def is_nothing(value: Any) -> bool:
    """Whether an option has no value, or the text that Jinja renders no value to."""
    return value is None or (isinstance(value, str) and value.strip() in _NOTHING)


def check_option(kind: type[CrewError], name: str, value: Any, template: Any) -> None:
    """Raise an error of that kind if the author has set the option, and its value is nothing."""
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
    Tells of one task. Nothing here may fail it.

    The tags reach backends that have tags; StatsD itself has none.
    """

    def __init__(self, crew_conn_id: str, context: Context) -> None:
        ti = context["ti"]
        self._tags = {"crew_conn_id": crew_conn_id, "dag_id": ti.dag_id, "task_id": ti.task_id}

    def kickoff(self, end: Literal["started", "not_taken", "uncertain"]) -> None:
        """Tell what came of a kickoff."""
        self._count(f"kickoff.{end}")

    def gave_up(self, error: errors.CrewError) -> None:
        """Tell how else a wait ended."""
        end = next((name for kind, name in _ENDS.items() if isinstance(error, kind)), "broken")
        self.ended(end, error.execution_time if isinstance(error, errors.ExecutionFailed) else None)

    def polls(self, polls: Polls) -> None:
        """Tell how often an execution was polled."""
        self._count("polls", polls.all)
        self._count("failed_polls", polls.failed)
        self._count("execution.paused", polls.paused)

    def tokens(self, usage: Mapping[str, Any]) -> None:
        """Tell how many tokens an execution has spent."""
        for name in ("prompt", "completion", "total"):
            if isinstance(count := usage.get(f"{name}_tokens"), int) and count > 0:
                self._count(f"tokens.{name}", count)

    def ended(self, end: str, execution_time: float | None) -> None:
        """Tell how an execution ended for a task, and how long it took, if the crew says so."""
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
        except Exception as error:  # noqa: BLE001 - an execution is worth more than a figure about it
            warn(log, f"Metrics were not sent. The task continues: {error}")


# What a task is given when it resumes: the name that it had before.
CARRIED_NAME = "map_index_name"

_TEMPLATE = "map_index_template"
_NAME = "crew_map_index_name"
# As much as Airflow's database takes.
_LONGEST = 250


class MappedName:
    """
    The name of a task among those that are mapped, for as long as its process lives.

    Airflow renders it when a task has done its work. A template that cannot be rendered then fails the task, and a
    retry would run the crew again. After a deferral even a good one cannot, if it needs what a function has set in
    its context before. So it is rendered here, as soon as it can be and once more at the end. What is left to
    Airflow is a template that certainly gives the same.
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
        """Render it with what is in the context by now, unless the name of an earlier process stands."""
        if self._template is None:
            return
        if not self._stands:
            self._try_to_render()
        self._leave_to_airflow()

    def recall(self, name: str) -> None:
        """Take the name of the try before: this one does not call the function that names it."""
        if name and self._template is not None and not self._stands:
            self._carried[CARRIED_NAME] = name
            self._stands = True
            self._leave_to_airflow()

    def finish(self) -> None:
        """Render it for the last time, and say so if it never could be."""
        self.render()
        if self._fault and not self.text:
            warn(
                self._log,
                f"map_index_template cannot be rendered: {self._fault}. The task is shown by its number.",
            )

    @property
    def text(self) -> str:
        """What it is, as far as it could be rendered."""
        return str(self._carried.get(CARRIED_NAME, ""))

    def _try_to_render(self) -> None:
        try:
            # A native environment may make something else of it than a text.
            environment = self._context["dag"].get_template_env(force_sandboxed=True)
            text = environment.from_string(self._template).render(self._context)
        except Exception as error:  # noqa: BLE001 - it is a user's, and may raise anything
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
        except Exception as error:  # noqa: BLE001 - a name is not worth failing for
            warn(self._log, f"The name of this mapped task was not sent to Airflow: {error}")


# What a task is given when it resumes: what its function has put into the events before, by number of the outlet.
CARRIED_EXTRAS = "outlet_extras"


class OutletEvents:
    """
    The events of the assets that a task has as outlets.

    Airflow sends them when the task has succeeded. By then the crew was paid, so nothing here fails the task.
    """

    def __init__(self, log: Any, context: Any, carried: dict[str, Any]) -> None:
        self._log = log
        self._context = context
        self._carried = carried

    def carry(self) -> None:
        """Keep what there is in them for the process that resumes, which begins with empty ones."""
        try:
            extras = {str(number): event.extra for number, event in self._events() if event.extra}
            if extras:
                self._carried[CARRIED_EXTRAS] = json.dumps(extras)
        except Exception as error:  # noqa: BLE001 - whatever a user has put there
            warn(self._log, f"The extra of an outlet event is lost by the deferral: {error}")

    def tell(self, execution: dict[str, Any]) -> None:
        """Add what is known of the execution. What a user has put there under the same name stands."""
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


# What a process hands on to the one that resumes, whatever the operator is.
CARRIED = (CARRIED_NAME, CARRIED_EXTRAS)
# What the events of outlets tell of a result, beside the kickoff id.
_TOLD_TO_OUTLETS = ("usage", "execution_time")


@dataclass
class RunningTask:
    """
    One try of a task, for as long as its process lives.

    ``execution``: the kickoff id of the execution that the task is about, as soon as that is known. ``memory``:
    what a task that kicks off remembers. ``carried``: what it is given besides the event when it resumes, as plain
    data. ``templates``: the arguments as the author gave them, before they were rendered. ``waits_again``: how
    this task itself can wait again, if it can, in words. ``has_ended``: so has the execution. ``result``: what it
    has put out, as the task returns it. ``name`` and ``outlets`` are what Airflow shows of the task.
    """

    log: Any
    context: Context
    crew_conn_id: str
    token_type: "TokenType | None"
    is_told_to_end: bool = False
    execution: str | None = None
    memory: KickoffMemory | None = None
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
        """The task instance."""
        return self.context["ti"]

    @property
    def started_at(self) -> float:
        """When this try has begun."""
        started_at = self.ti.start_date  # which Airflow 2 does not set in dag.test()
        return started_at.timestamp() if started_at else time.time()

    @cached_property
    def hook(self) -> "CrewHook":
        """The hook for the connection, of which a task that is told the end by its trigger has no need."""
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
        """What tells Airflow's statistics of this task."""
        return TaskMetrics(self.crew_conn_id, self.context)

    @cached_property
    def progress(self) -> TaskProgress:
        """What leaves in XCom how the execution is doing."""
        return TaskProgress(self.ti, self.log, self.started_at)

    def finish(self) -> None:
        """Complete what Airflow takes from the task itself: its name, and the events of its outlets."""
        self.name.finish()
        told = {name: self.result[name] for name in _TOLD_TO_OUTLETS if name in self.result}
        self.outlets.tell({"kickoff_id": self.execution, **told})

    def warn(self, text: str) -> None:
        """Warn in lines that fit a screen."""
        warn(self.log, text)

    def leave(self, key: str, value: Any, *, what: str) -> None:
        """Leave a value in XCom. The execution runs, or has ended, so this may not fail the task."""
        try:
            self.ti.xcom_push(key=key, value=value)
        except Exception as error:  # noqa: BLE001
            self.warn(f"{what} was not pushed to XCom: {error}")

    def leave_link(self, kickoff_id: str | None = None) -> None:
        """
        Leave the address of the page to look at, once as soon as it is known.

        That of an execution has the kickoff id in it. A try that goes on with an execution has to leave it again.
        """
        try:
            url = self.hook.connection.page_of(kickoff_id)
        except Exception:  # noqa: BLE001 - what needs the connection says what is wrong with it
            return
        before, self._link = self._link, url or ""
        if url and url != before:
            self.leave(DASHBOARD_KEY, url, what="Link to the crew's page")

    @property
    def dashboard_url(self) -> str:
        """
        The page to look at, as this process or the one before has left it.

        Airflow is asked only where this process does not know: it logs an error about an XCom that is not there.
        """
        if self._link is not None:
            return self._link
        ti = self.ti
        return str(ti.xcom_pull(task_ids=ti.task_id, key=DASHBOARD_KEY, map_indexes=ti.map_index) or "")

    def end(self) -> None:
        """Say what goes on when the task is told to end. Airflow 3 lets it run on a while, perhaps to its end."""
        self.is_told_to_end = True
        if self.memory:
            self.memory.note_again()
        if self.execution:
            step = self.waits_again or f'Wait for it with CrewExecutionSensor(kickoff_id="{self.execution}").'
            event = f"Task is being stopped. Execution {self.execution} continues."
            self.log.warning("%s", self.about_its_execution(event, step))

    def about_its_execution(self, event: str, next_step: str) -> CrewError:
        """Return what is known of the execution if the task is ended by something else."""
        cost = Cost.ENDED if self.has_ended else Cost.RUNNING
        return CrewError(event, cost=cost, next_step=next_step, kickoff_id=self.execution or "")
