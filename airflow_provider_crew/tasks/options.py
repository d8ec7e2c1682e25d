"""Options that the author of a task has set, and that render to nothing."""

from typing import Any

from airflow_provider_crew.service.errors import Cost, CrewError
from airflow_provider_crew.service.text import one_line

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
