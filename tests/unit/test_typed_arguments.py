"""What an output_type is when a DAG is parsed: it costs nothing, is stored as text, or is refused."""

from __future__ import annotations

import copy
import json
from importlib import import_module
from typing import Annotated, Any

import pytest
from airflow.providers.common.compat.sdk import DAG
from pydantic import BaseModel, Field

from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

serialized_objects = import_module("airflow.serialization.serialized_objects")
# The latter up to Airflow 3.1.
STORED: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG


class Report(BaseModel):
    title: str


class Dear:
    """A type that nobody may look at before the task runs."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        raise AssertionError("looked at")


TYPES = [Report, list[Report], Report | None, Annotated[int, Field(gt=0)], "my_company.reports.Report", Dear]


def inputs(topic: str = "ferries") -> dict[str, str]:
    return {"topic": topic}


def dag_with(output_type: object) -> Any:
    with DAG("typed", schedule=None) as dag:
        run = CrewRunOperator(task_id="run", inputs={}, output_type=output_type)
        CrewRunOperator.partial(task_id="mapped", output_type=output_type).expand(inputs=[{}, {}])
        CrewExecutionSensor(task_id="sensor", kickoff_id=run.output, output_type=output_type)
        crew_task(task_id="decorated", output_type=output_type)(inputs)()
        mapped: Any = crew_task(task_id="mapped_function", output_type=output_type)(inputs)
        mapped.expand(topic=["ferries", "trains"])
    return dag


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_a_dag_with_it_is_stored_and_read_back(output_type):
    stored = json.dumps(STORED.to_dict(dag_with(output_type)))

    read = STORED.from_dict(json.loads(stored))

    assert {*read.task_dict} == {"run", "mapped", "sensor", "decorated", "mapped_function"}
    assert len(stored) < 40_000


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_a_copied_task_has_it(output_type):
    run = dag_with(output_type).get_task("run")

    assert str(copy.deepcopy(run).output_type) == str(output_type)


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_a_mapped_task_is_given_it(output_type):
    mapped = dag_with(output_type).get_task("mapped")

    assert mapped.partial_kwargs["output_type"] == output_type
    assert "output_type" not in mapped.template_fields


class OurReport(CrewRunOperator):
    """As a user derives it."""


def sensor(**arguments: Any) -> Any:
    return CrewExecutionSensor(kickoff_id="4711", **arguments)


def decorated(**arguments: Any) -> Any:
    return crew_task(**arguments)(inputs)()


every_author = pytest.mark.parametrize(
    ("author", "name"),
    [(OurReport, "OurReport"), (sensor, "CrewExecutionSensor"), (decorated, "@task.crew")],
    ids=["operator", "sensor", "decorator"],
)


@every_author
@pytest.mark.parametrize(
    ("output_type", "why"),
    [
        ("Report", "output_type as text must be an import path"),
        ("", "output_type as text must be an import path"),
        ("{{ params.type }}.Report", "output_type as text must be an import path"),
        ({"title": str}, "output_type must be a type, or the import path of one, and is of type dict."),
        (["title"], "output_type must be a type, or the import path of one, and is of type list."),
        (7, "output_type must be a type, or the import path of one, and is of type int."),
    ],
    ids=repr,
)
def test_what_can_be_no_type_is_refused_by_the_names_that_its_author_knows(author, name, output_type, why):
    arguments: Any = {"inputs": {}} if author is OurReport else {}

    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        author(task_id="crew", output_type=output_type, **arguments)

    assert str(caught.value).startswith(f"{name}: {why}")


def test_a_type_is_not_taken_from_another_task():
    with DAG("typed", schedule=None):
        before = CrewRunOperator(task_id="before", inputs={})
        with pytest.raises(ValueError, match="^CrewRunOperator: output_type takes nothing from another task."):
            CrewRunOperator(task_id="run", inputs={}, output_type=before.output)


@every_author
def test_a_time_that_is_none_is_refused_by_the_names_that_its_author_knows(author, name):
    arguments: Any = {"inputs": {}} if author is OurReport else {}

    with pytest.raises(ValueError, match=f"^{name}: timeout must be a number of seconds"):
        author(task_id="crew", timeout="soon", **arguments)


def test_what_is_to_be_done_about_a_misfit_is_one_of_two():
    with pytest.raises(ValueError, match="^CrewRunOperator: on_invalid_output must be 'fail' or 'retry'."):
        CrewRunOperator(task_id="run", inputs={}, on_invalid_output="skip")  # type: ignore[arg-type]
