"""A task in its process: what it asks Airflow and the crew for, and which execution it is about."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.service.errors import Cost, CrewError, InvalidSettings
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.tasks.memory import KickoffMemory
from airflow_provider_crew.tasks.metrics import TaskMetrics
from airflow_provider_crew.tasks.naming import CARRIED_NAME, MappedName
from airflow_provider_crew.tasks.options import check_option
from airflow_provider_crew.tasks.outlets import CARRIED_EXTRAS, OutletEvents
from airflow_provider_crew.tasks.progress import TaskProgress

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.hooks.crew import CrewHook

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
            event = f"Task is told to end. Execution {self.execution} continues."
            self.log.warning("%s", self.about_its_execution(event, step))

    def about_its_execution(self, event: str, next_step: str) -> CrewError:
        """Return what is known of the execution if the task is ended by something else."""
        cost = Cost.ENDED if self.has_ended else Cost.RUNNING
        return CrewError(event, cost=cost, next_step=next_step, kickoff_id=self.execution or "")
