"""output_type when a DAG is parsed: it is not imported, is stored as text, or is rejected."""

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
def test_dag_with_an_output_type_is_serialized(output_type):
    stored = json.dumps(STORED.to_dict(dag_with(output_type)))

    read = STORED.from_dict(json.loads(stored))

    assert {*read.task_dict} == {"run", "mapped", "sensor", "decorated", "mapped_function"}
    assert len(stored) < 40_000


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_copied_task_keeps_its_output_type(output_type):
    run = dag_with(output_type).get_task("run")

    assert str(copy.deepcopy(run).output_type) == str(output_type)


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_mapped_task_keeps_its_output_type(output_type):
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
    ("argument", "value"),
    [
        ("output_type", "Report"),
        ("output_type", ""),
        ("output_type", "{{ params.type }}.Report"),
        ("output_type", {"title": str}),
        ("output_type", ["title"]),
        ("output_type", 7),
        ("timeout", "soon"),
    ],
    ids=repr,
)
def test_invalid_argument_names_the_class_and_the_argument(author, name, argument, value):
    arguments: Any = {"inputs": {}} if author is OurReport else {}

    with pytest.raises(ValueError, match=rf"{name}\b.*\b{argument}\b"):
        author(task_id="crew", **{argument: value}, **arguments)


def test_output_type_from_another_task_is_rejected():
    with DAG("typed", schedule=None):
        before = CrewRunOperator(task_id="before", inputs={})
        with pytest.raises(ValueError, match=r"CrewRunOperator.*output_type"):
            CrewRunOperator(task_id="run", inputs={}, output_type=before.output)


def test_unknown_on_invalid_output_is_rejected():
    with pytest.raises(ValueError, match=r"CrewRunOperator.*on_invalid_output"):
        CrewRunOperator(task_id="run", inputs={}, on_invalid_output="skip")  # type: ignore[arg-type]
