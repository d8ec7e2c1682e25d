"""``@task.crew`` decorator: the function returns the inputs, and the task returns the crew's result."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, overload

from airflow.providers.common.compat.sdk import (
    SET_DURING_EXECUTION,
    DecoratedOperator,
    context_merge,
    determine_kwargs,
    task_decorator_factory,
)

from airflow_provider_crew.operators.crew import CrewRunOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.providers.common.compat.sdk import Context, XComArg

    Inputs = Callable[..., Mapping[str, Any]]
    CrewTaskFunction = Callable[..., XComArg]


class _CrewDecoratedOperator(DecoratedOperator, CrewRunOperator):
    """Operator that calls the function for the inputs of its kickoff. It skips the call if it reattaches."""

    overwrite_rtif_after_execution = False
    custom_operator_name = "@task.crew"
    # A task that resumes or reattaches needs only the connection, so that is rendered first.
    template_fields = ("crew_conn_id", *DecoratedOperator.template_fields, *CrewRunOperator.template_fields[1:])
    template_fields_renderers: ClassVar[dict[str, str]] = (
        DecoratedOperator.template_fields_renderers | CrewRunOperator.template_fields_renderers
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(inputs=SET_DURING_EXECUTION, **kwargs)

    def kickoff_inputs(self, context: Context) -> Any:
        """Call the function. Airflow shows its return value as the rendered inputs without rendering it again."""
        from airflow_provider_crew.client.payload import plain
        from airflow_provider_crew.task.task import is_nothing, reject_nothing

        context_merge(context, self.op_kwargs)
        arguments = determine_kwargs(self.python_callable, self.op_args, context)
        self.inputs = plain(self.python_callable(*self.op_args, **arguments), "inputs")
        self.overwrite_rtif_after_execution = True
        names, given = inspect.signature(self.python_callable).parameters, self.given
        templates = {**dict(zip(names, given["op_args"], strict=False)), **given["op_kwargs"]}
        held = {**dict(zip(names, self.op_args, strict=False)), **self.op_kwargs}
        for name, value in self.inputs.items() if isinstance(self.inputs, dict) else ():
            if name in held and (value is held[name] or not is_nothing(value)):  # else the function's own
                reject_nothing(f"inputs.{name}", value, templates[name])
        return self.inputs


@overload
def crew_task(python_callable: Inputs) -> CrewTaskFunction: ...


@overload
def crew_task(**kwargs: Any) -> Callable[[Inputs], CrewTaskFunction]: ...


def crew_task(python_callable: Inputs | None = None, **kwargs: Any) -> Any:
    """
    Run a crew with the inputs that the decorated function returns.

    Takes the arguments of CrewRunOperator except ``inputs``. In a DAG you can write ``@task.crew`` instead. Import
    this function if you use a type checker.
    """
    # Otherwise Airflow would split the result because of the return annotation, which describes the inputs.
    options = {"multiple_outputs": False, **kwargs}
    return task_decorator_factory(
        python_callable=python_callable, decorated_operator_class=_CrewDecoratedOperator, **options
    )
