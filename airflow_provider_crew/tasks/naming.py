"""What a mapped task is called: its ``map_index_template``, rendered so that it fails nothing that is paid for."""

from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_crew.compat import reads_names, show_name
from airflow_provider_crew.service.storable import storable_text
from airflow_provider_crew.service.text import warn

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
            warn(self._log, f"Airflow was not told the name of this mapped task: {error}")
