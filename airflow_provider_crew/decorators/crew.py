"""``@task.crew``: a function returns the inputs, the task returns the crew's result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    SET_DURING_EXECUTION,
    DecoratedOperator,
    context_merge,
    determine_kwargs,
    task_decorator_factory,
)

from airflow_provider_crew.operators.crew import CrewRunOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Context, TaskDecorator


class _CrewDecoratedOperator(DecoratedOperator, CrewRunOperator):
    """Calls the function for the inputs of its kickoff, and not at all when it goes on with an earlier one."""

    custom_operator_name = "@task.crew"
    template_fields = (*DecoratedOperator.template_fields, *CrewRunOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **CrewRunOperator.template_fields_renderers,
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(inputs=SET_DURING_EXECUTION, **kwargs)

    def kickoff_inputs(self, context: Context) -> Any:
        """Call the function. What it returns is shown as the rendered inputs, and is not rendered again."""
        context_merge(context, self.op_kwargs)
        arguments = determine_kwargs(self.python_callable, self.op_args, context)
        self.inputs = self.python_callable(*self.op_args, **arguments)
        self.overwrite_rtif_after_execution = True
        return self.inputs


def crew_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """
    Run a crew with the inputs that the decorated function returns.

    Takes the arguments of CrewRunOperator, but for ``inputs``.
    """
    # Airflow would unroll the result because of an annotation that speaks of the inputs.
    options = {"multiple_outputs": False, **kwargs}
    return task_decorator_factory(
        python_callable=python_callable, decorated_operator_class=_CrewDecoratedOperator, **options
    )
