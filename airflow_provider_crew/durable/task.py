"""Process of a running task: its execution, its hook, and its access to Airflow."""

import copy
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_crew import versions
from airflow_provider_crew.client.errors import Cost, CrewError, InvalidSettings, storable_text
from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.client.text import one_line, warn
from airflow_provider_crew.client.watch import after_cancelling
from airflow_provider_crew.durable.progress import TaskProgress
from airflow_provider_crew.durable.record import SharedRecord
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.versions import reads_names, show_name

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.crew import CrewHook
    from airflow_provider_crew.operators.base import CrewTask

# Seconds to wait for a cancellation before the process ends. Airflow kills it 5 seconds after SIGTERM.
_TIME_TO_CANCEL = 4.0
# Seconds that a signal handler waits. The task goes on afterwards, and may first have to finish the request to
# Airflow that the signal interrupted: until then, no other thread can send one.
_TIME_IN_HANDLER = 0.5
# Rendered value of a template that names a task without a result, or a task that does not exist.
_NOTHING = frozenset({"", "None"})
_SHOWN = 300


def is_nothing(value: Any) -> bool:
    """Whether an option has no value, or the text that Jinja renders no value to."""
    return value is None or (isinstance(value, str) and value.strip() in _NOTHING)


def template_text(template: Any, value: Any) -> str:
    """Return a template for a message. An option that was not rendered is its own template."""
    shown = value if template is None else template
    return one_line(str(shown), _SHOWN) or repr(shown)


# Keyword arguments of a resumed task: its name, and its asset event extras by number of the outlet.
_CARRIED_NAME = "map_index_name"
_CARRIED_EXTRAS = "outlet_extras"
_TEMPLATE = "map_index_template"
_NAME = "crew_map_index_name"
# Longest name that Airflow's database can store.
_LONGEST = 250
# Values of a result in the asset event extras, besides the kickoff ID.
_EXTRAS = ("usage", "execution_time")


class RunningTask:
    """
    One attempt of a task in the current process.

    :param operator: Operator, with its rendered arguments.
    :param context: Airflow's context of the task.
    :param next_kwargs: Values that the previous process stored for this one when it deferred the task.
    """

    record: SharedRecord | None = None
    """Kickoff record. ``None`` for a sensor."""
    kickoff_id: str | None = None
    """Kickoff ID of the task's execution. ``None`` until it is known."""
    has_ended = False
    """Whether the execution has ended."""
    unwanted: CrewError | None = None
    """Error with which the task ends, if it cancels its execution because Airflow has ended the task."""
    waits_again = ""
    """Next step with which this task can wait again, for messages. Empty if there is none."""
    result: Mapping[str, Any] | None = None
    """Result of the execution as the task returns it."""
    _cancelling: threading.Thread | None = None

    def __init__(self, operator: "CrewTask", context: Any, next_kwargs: Mapping[str, Any] | None) -> None:
        self.operator: Any = operator  # each user knows which class it is
        self.context = context
        self.log = operator.log
        given = next_kwargs or {}
        self.carried = {name: given[name] for name in (_CARRIED_NAME, _CARRIED_EXTRAS) if name in given}
        """Plain data that the next process receives when the task resumes, besides the event."""
        self._link: str | None = None
        self._name_template = self.context.get(_TEMPLATE)
        self._has_final_name = _CARRIED_NAME in self.carried
        self._name_error: Exception | None = None
        if self._name_template is not None:
            self.context[_TEMPLATE] = None
            self.render_name()

    @property
    def ti(self) -> Any:
        """Task instance."""
        return self.context["ti"]

    @property
    def started_at(self) -> float:
        """Start time of this attempt."""
        return float(self.ti.start_date.timestamp())

    @cached_property
    def hook(self) -> "CrewHook":
        """Hook for the connection, created on first use. A task whose trigger returns the result needs none."""
        from airflow_provider_crew.hooks.crew import CrewHook

        self.check_connection()
        return CrewHook(self.operator.crew_conn_id, token_type=self.operator.token_type)

    def check_connection(self) -> None:
        """Raise InvalidSettings if crew_conn_id has rendered to nothing."""
        # There is no crew without a connection, so it counts as set even if the author passes None.
        self.check_option("crew_conn_id", InvalidSettings, is_set=True)

    def check_option(self, name: str, kind: type[CrewError], *, is_set: bool = False) -> None:
        """Raise an error of the given kind if an option of the operator is set but has no value."""
        value, template = getattr(self.operator, name), self.operator.templates.get(name)
        is_set = is_set or value is not None or template is not None
        if is_set and is_nothing(value):
            raise kind(
                f"{name} is set, but renders to {value!r:.40}. Its template: {template_text(template, value)}.",
                cost=Cost.NONE,
                next_step="Fix the template, or check the task whose result it names. "
                f"To send no {name}, pass None.",
            )

    @cached_property
    def progress(self) -> TaskProgress:
        """Progress of the execution in XCom."""
        return TaskProgress(self.ti, self.log, self.started_at)

    @property
    def name(self) -> str:
        """Rendered ``map_index_template`` of a mapped task, or an empty string."""
        return str(self.carried.get(_CARRIED_NAME, ""))

    def render_name(self, known: str = "") -> None:
        """
        Render ``map_index_template`` with the current context, unless the name is final.

        Airflow renders it after the task's work. If that fails, the task fails, and a retry would run the crew
        again. After a deferral, even a valid template fails if it needs variables that a function set in the
        context before. So this method is called as soon as possible, and again at the end. It replaces the
        template with one that always renders to the same name.

        :param known: Name of an earlier attempt, which is final, because this one does not call the function that
            sets the variables.
        """
        if self._name_template is None:
            return
        if known and not self._has_final_name:
            self.carried[_CARRIED_NAME], self._has_final_name = known, True
        context = self.context
        try:
            # A native environment may render the template to something other than a string.
            environment = context["dag"].get_template_env(force_sandboxed=True)
            if not self._has_final_name:
                text = environment.from_string(self._name_template).render(context)
                if name := storable_text(text)[:_LONGEST]:
                    self.carried[_CARRIED_NAME] = name
            if self.name:
                context[_NAME] = repr(self.name) if reads_names(context["dag"]) else self.name
                context[_TEMPLATE] = (
                    f"{environment.variable_start_string} {_NAME} {environment.variable_end_string}"
                )
                show_name(self.ti, self.name)
        except Exception as error:  # noqa: BLE001 - a user's template may raise anything
            self._name_error = error
            if self.name:
                self.warn(f"The name of this mapped task was not sent to Airflow: {error}")

    def carry_outlet_extras(self) -> None:
        """Save the asset event extras for the process that resumes, which starts with empty events."""
        try:
            extras = {str(number): event.extra for number, event in self._outlet_events() if event.extra}
            if extras:
                self.carried[_CARRIED_EXTRAS] = json.dumps(extras)
        except Exception as error:  # noqa: BLE001 - a user's extras may contain any object
            self.warn(f"The task's asset event extras are lost after the deferral: {error}")

    def finish(self) -> None:
        """
        Set the task's name and its asset event extras for Airflow.

        Airflow sends the events after the task has succeeded. The execution is billed by then, so no error may
        fail the task. A user's extra takes precedence.
        """
        self.render_name()
        if self._name_error and not self.name:
            self.warn(f"map_index_template cannot be rendered: {self._name_error}. Airflow shows the map index.")
        result = self.result or {}
        extra = {"kickoff_id": self.kickoff_id, **{name: result[name] for name in _EXTRAS if name in result}}
        try:
            carried = json.loads(self.carried.get(_CARRIED_EXTRAS, "{}"))
            for number, event in self._outlet_events():
                event.extra = {**extra, **carried.get(str(number), {}), **event.extra}
        except Exception as error:  # noqa: BLE001
            self.warn(f"The execution was not added to the asset event extras: {error}")

    def _outlet_events(self) -> Iterator[tuple[int, Any]]:
        from airflow.sdk.definitions.asset import Asset, AssetRef

        for number, outlet in enumerate(self.context.get("outlets") or ()):
            if isinstance(outlet, (Asset, AssetRef)):
                yield number, self.context["outlet_events"][outlet]

    def measure(self, metric: str, count: int = 1, *, seconds: float | None = None) -> None:
        """Count a metric, or record a duration. Plain StatsD does not receive the tags."""
        ti, conn_id = self.ti, self.operator.crew_conn_id
        tags = {"crew_conn_id": conn_id, "dag_id": ti.dag_id, "task_id": ti.task_id}
        try:
            from airflow.providers.common.compat.sdk import Stats

            if seconds is not None:
                Stats.timing(f"crew.{metric}", timedelta(seconds=seconds), tags=tags)
            elif count:
                Stats.incr(f"crew.{metric}", count, tags=tags)
        except Exception as error:  # noqa: BLE001 - metrics are best effort
            self.warn(f"Metrics were not sent. The task continues: {error}")

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
        url = self.page(kickoff_id)
        if url and url != self._link:
            self._link = url
            self.push_xcom(DASHBOARD_KEY, url, what="Link to the crew's page")

    def page(self, kickoff_id: str | None = None) -> str | None:
        """Return the dashboard URL, or None if there is none."""
        try:
            return self.hook.connection.page_of(kickoff_id)
        except Exception:  # noqa: BLE001 - the next use of the connection raises the error
            return None

    def end(self) -> None:
        """Log the running execution, or cancel it, while Airflow stops the task. It may go on."""
        self.operator.is_told_to_end = True
        if self.record:
            self.record.save_again()
            self.kickoff_id = self.kickoff_id or self.record.running  # this attempt may not have reattached yet
        if self.kickoff_id is None:
            return
        state = "has ended" if self.has_ended else "continues"
        if not (self.has_ended or self.operator.is_over or self.operator.cancel_on_kill is False):
            # In a thread, because the signal that led here may have interrupted a request to Airflow.
            self._cancelling = threading.Thread(target=self._cancel_if_unwanted)
            self._cancelling.start()
            self._cancelling.join(_TIME_IN_HANDLER)
            if self._cancelling.is_alive():
                state = "may still be cancelled"
            elif self.unwanted:
                return
        step = self.waits_again or f'Wait for it with CrewExecutionSensor(kickoff_id="{self.kickoff_id}").'
        event = f"Task is being stopped. Execution {self.kickoff_id} {state}."
        self.log.warning("%s", self.about_its_execution(event, step))

    def finish_cancelling(self) -> None:
        """Wait for a cancellation that is under way, because the process ends with the task."""
        if self._cancelling:
            self._cancelling.join(_TIME_TO_CANCEL)

    def _cancel_if_unwanted(self) -> None:
        """Cancel the execution if Airflow has ended the task. A task that was cleared reattaches to it."""
        if self.cancels_on("kill") and versions.has_ended(self.ti):
            event = f"Airflow ended the task while execution {self.kickoff_id} was running."
            self.unwanted = CrewError(event, cost=Cost.RUNNING, kickoff_id=self.kickoff_id or "")
            self.unwanted = self.cancelled(self.unwanted)
            self.log.warning("%s", self.unwanted)
            self.progress.ended(self.unwanted.kickoff_id, self.unwanted)

    def cancels_on(self, event: Literal["kill", "timeout"]) -> bool:
        """Whether to cancel the execution on a kill or a timeout. The connection has the default."""
        name = f"cancel_on_{event}"
        if (own := getattr(self.operator, name)) is not None:
            return bool(own)
        with suppress(Exception):  # the next use of the connection raises the error
            return bool(getattr(self.hook.connection, name))
        return False

    def cancelled(self, end: CrewError) -> CrewError:
        """Cancel the execution, and return the error that ends the task with the outcome."""
        try:
            execution = copy.copy(self.hook).cancel(end.kickoff_id)  # a copy has the token that is valid now
        except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
            return after_cancelling(end, error)
        self.has_ended = True
        if self.record:
            is_completed = isinstance(execution, Completed)
            self.record.update(kickoff_id=end.kickoff_id, end="completed" if is_completed else "failed")
        return after_cancelling(end, execution)

    def about_its_execution(self, event: str, next_step: str) -> CrewError:
        """Return an error about the execution, with its cost, if something other than the crew ends the task."""
        cost = Cost.ENDED if self.has_ended else Cost.RUNNING
        return CrewError(event, cost=cost, next_step=next_step, kickoff_id=self.kickoff_id or "")
