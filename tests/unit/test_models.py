"""Reading the status of an execution as documented, whatever else the answer holds."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.client.errors import storable_json
from airflow_provider_crew.client.models import (
    Completed,
    Failed,
    Paused,
    Progress,
    Running,
    TaskResult,
    read_execution,
    read_inputs,
)
from tests.unit.crew_builders import KICKOFF_ID

FENCED = 'Here it is:\n```json\n{"a": 1}\n```\nEnjoy.'


def read(body: dict[str, Any]) -> Any:
    return read_execution(body, KICKOFF_ID)


def running(body: dict[str, Any]) -> Running:
    execution = read({"status": "running"} | body)
    assert isinstance(execution, Running)
    return execution


def completed(body: dict[str, Any]) -> Completed:
    execution = read({"status": "completed"} | body)
    assert isinstance(execution, Completed)
    return execution


def failed(body: dict[str, Any]) -> Failed:
    execution = read(body)
    assert isinstance(execution, Failed)
    return execution


def nested(levels: int) -> Any:
    """Nest objects and lists by turns."""
    value: Any = "leaf"
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


@pytest.mark.parametrize("key", ["status", "state"])
@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("running|RUNNING|Running|queued|PENDING|STARTED| running ", Running),
        ("paused|PAUSED|Paused ", Paused),
        ("completed|COMPLETED|SUCCESS|success", Completed),
        ("error|ERROR|FAILED|failed|FAILURE|failure\n|REVOKED", Failed),
        ("NOT FOUND|not found|Not Found|not_found", type(None)),
    ],
)
def test_known_states_in_either_field_and_any_case(key: str, words: str, shape: type) -> None:
    executions = [read({key: word, "result": "Done.", "error": "boom"}) for word in words.split("|")]

    assert {type(execution) for execution in executions} == {shape}
    assert all(execution.is_known for execution in executions if isinstance(execution, Running | Paused))


@pytest.mark.parametrize("key", ["status", "state"])
@pytest.mark.parametrize("word", ["awaiting_human_feedback", "Task is Running"])
def test_unknown_state_is_running(key: str, word: str) -> None:
    execution = read({key: word, "result": "something"})

    assert isinstance(execution, Running)
    assert execution.word == word
    assert not execution.is_known


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        pytest.param({"status": "running", "state": "SUCCESS"}, Completed, id="both known"),
        pytest.param({"status": "success", "state": "RUNNING"}, Running, id="the call's success beside a state"),
        pytest.param({"status": "Task is Running", "state": "PAUSED"}, Paused, id="a sentence"),
        pytest.param({"status": "ValueError: not found", "state": "FAILED"}, Failed, id="a reason"),
    ],
)
def test_precedence_of_two_states(body: dict[str, Any], shape: type) -> None:
    assert type(read({"result": "Done.", **body})) is shape


@pytest.mark.parametrize("body", [{}, {"status": ["running"]}, {"result": "x"}], ids=str)
def test_body_without_a_status_is_rejected(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="status"):
        read(body)


def test_documented_running_answer() -> None:
    execution = running({"current_task": "writing_task", "progress": {"completed_tasks": 1, "total_tasks": 3}})

    assert execution.current_task == "writing_task"
    assert execution.progress == Progress(completed=1, total=3, unit="task")
    assert (execution.kickoff_id, execution.word) == (KICKOFF_ID, "running")
    assert running({"progress": {"completed_tasks": 0, "total_tasks": 0}}).progress is not None


@pytest.mark.parametrize(
    "decoration",
    [
        {"current_task": 7, "progress": "half"},
        {"current_task": ["a"], "progress": {"total_tasks": 3}},
        {"progress": {"completed_tasks": -1, "total_tasks": 3}},
        {"progress": {"completed_tasks": 1.5, "total_tasks": float("nan")}},
        {"progress": {"completed": 1, "total": 2, "unit": ["step"]}},
        {"progress": {"completed": 1, "total": -2}},
    ],
    ids=str,
)
def test_invalid_details_of_a_running_execution_are_dropped(decoration: dict[str, Any]) -> None:
    execution = running(decoration)

    assert (execution.current_task, execution.progress) == (None, None)
    assert (execution.kickoff_id, execution.word) == (KICKOFF_ID, "running")


def test_documented_completed_answer() -> None:
    tasks = [
        {"task_id": "research_task", "agent": "Researcher", "output": "Facts.", "execution_time": 12.5},
        {"task_id": "writing_task", "agent": "Writer", "output": "Text.", "execution_time": 30},
    ]
    execution = completed(
        {"result": {"output": "Text.", "tasks": tasks}, "execution_time": 42.5, "extra": "ignored"}
    )

    assert execution.result() == {
        "kickoff_id": KICKOFF_ID,
        "output": "Text.",
        "output_json": None,
        "tasks": tasks,
        "tasks_complete": True,
        "usage": None,
        "execution_time": 42.5,
    }


@pytest.mark.parametrize(
    ("body", "output", "output_json"),
    [
        pytest.param({"result": {"output": "text", "tasks": []}}, "text", None, id="documented"),
        pytest.param({"result": "text", "last_step": {"n": 1}}, "text", None, id="plain text"),
        pytest.param({"final_output": "text"}, "text", None, id="final_output"),
        pytest.param({"result_json": {"a": 1}}, "", {"a": 1}, id="only JSON"),
        pytest.param({"result": '{"a": 1}'}, '{"a": 1}', {"a": 1}, id="output is an object"),
        pytest.param({"result": {"output": {"a": "ü"}}}, '{"a": "ü"}', {"a": "ü"}, id="output not as text"),
        pytest.param({"result": ["a"]}, '["a"]', ["a"], id="result is an array"),
        pytest.param({"result": {"answer": 42}}, '{"answer": 42}', {"answer": 42}, id="result is any object"),
        pytest.param({"result": "42"}, "42", None, id="output is a number"),
        pytest.param({"result": "{broken"}, "{broken", None, id="output is no JSON"),
        pytest.param({"result": FENCED}, FENCED, {"a": 1}, id="output holds one block of JSON"),
        pytest.param({"result": f"{FENCED}\n{FENCED}"}, f"{FENCED}\n{FENCED}", None, id="output holds two blocks"),
        pytest.param({"result": "text", "result_json": {"a": 1}}, "text", {"a": 1}, id="result_json, object"),
        pytest.param({"result": "[1]", "result_json": None}, "[1]", [1], id="result_json is null"),
    ],
)
def test_output_is_found_in_any_field(body: dict[str, Any], output: str, output_json: Any) -> None:
    execution = completed(body)

    assert (execution.output, execution.output_json) == (output, output_json)


@pytest.mark.parametrize("nothing", [{}, [], False, 0])
def test_empty_result_json_is_a_result(nothing: Any) -> None:
    assert completed({"result": "Nothing was found.", "result_json": nothing}).output_json == nothing


@pytest.mark.parametrize(
    ("tasks", "read_to"),
    [
        ([None, "a", 7, {}], [TaskResult(execution_time=None)]),
        (
            [{"task_id": 7, "agent": None, "output": {"a": 1}, "execution_time": "long"}],
            [TaskResult(task_id="7", agent="", output='{"a": 1}', execution_time=None)],
        ),
        (
            [{"output": "a\x00", "execution_time": -1}, {"execution_time": float("inf")}],
            [TaskResult(output="a\ufffd", execution_time=None), TaskResult(execution_time=None)],
        ),
    ],
    ids=["only objects", "other types", "not storable"],
)
def test_invalid_task_results_are_dropped(tasks: Any, read_to: list[TaskResult]) -> None:
    assert [*completed({"result": {"output": "x", "tasks": tasks}}).tasks] == read_to


@pytest.mark.parametrize(
    ("time", "seconds"),
    [(0, 0.0), ("12.5", 12.5), (-1, None), (10**400, None), (float("nan"), None)],
    ids=lambda value: str(value)[:10],
)
def test_invalid_execution_time_is_dropped(time: Any, seconds: float | None) -> None:
    assert completed({"result": "Done.", "execution_time": time}).execution_time == seconds
    assert failed({"status": "error", "error": "boom", "execution_time": time}).execution_time == seconds


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"status": "error", "error": "boom", "execution_time": 7.5}, "boom"),
        ({"state": "FAILED", "result": "boom", "last_step": None}, "boom"),
        ({"state": "FAILED", "status": "why", "error": "boom"}, "boom"),
        ({"state": "FAILED", "status": "Task failed", "result": "boom"}, "boom"),
        ({"state": "FAILED", "status": "E: the crew is still running"}, "E: the crew is still running"),
        ({"state": "FAILED", "status": "not found: no such tool"}, "not found: no such tool"),
        ({"state": "FAILURE", "error_message": "boom"}, "boom"),
        ({"state": "REVOKED"}, "revoked"),
        ({"state": "REVOKED", "status": "by an admin"}, "by an admin"),
        ({"status": "revoked", "error": "boom"}, "boom"),
        ({"state": "FAILED", "error": {"code": 7}}, '{"code": 7}'),
        ({"status": "error", "error": "a\x00\udfff"}, "a\ufffd\ufffd"),
    ],
    ids=ascii,
)
def test_error_is_found_in_any_field(body: dict[str, Any], error: str) -> None:
    assert failed(body).error == error


@pytest.mark.parametrize("word", ["error", " Error ", "failed", "revoked"])
@pytest.mark.parametrize(
    "body", [{}, {"message": "No database"}, {"error": {"message": "No database"}}, {"result": "No database"}]
)
def test_error_without_text_is_rejected(word: str, body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="error"):
        read({"status": word, **body})


@pytest.mark.parametrize("word", ["completed", "success", "SUCCESS"])
@pytest.mark.parametrize(
    "body",
    [{"message": "OK"}, {"result": None, "state": None}, {"result": None, "state": {"is": "SUCCESS"}}],
    ids=str,
)
def test_success_without_a_result_is_rejected(word: str, body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="result"):
        read({"status": word, **body})


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (float("nan"), None),
        ({"a\x00": "\ud800b"}, {"a\ufffd": "\ufffdb"}),
        (-(2**63) - 1, "-9223372036854775809"),
        ([2**64], ["18446744073709551616"]),
    ],
    ids=ascii,
)
def test_json_is_made_storable(value: Any, stored: Any) -> None:
    assert storable_json(value) == stored
    assert completed({"result_json": {"in": value}}).output_json == {"in": stored}


@pytest.mark.parametrize(
    ("text", "output_json"),
    [
        ('{"n": [NaN, -Infinity, 1e999]}', {"n": [None, None, None]}),
        ('{"a": "\\u0000\\ud800"}', {"a": "\ufffd\ufffd"}),
        ("[" * 66 + "]" * 66, None),
        ("[" * 100_000, None),
    ],
    ids=["no numbers", "escaped", "too deep to store", "too deep to read"],
)
def test_json_output_is_made_storable(text: str, output_json: Any) -> None:
    execution = completed({"result": text})

    assert (execution.output, execution.output_json) == (text, output_json)
    assert completed({"result": "plain", "result_json": text}).output_json == output_json


def test_json_is_stored_down_to_64_levels() -> None:
    assert storable_json(nested(64)) == nested(64)
    with pytest.raises(ValueError, match="64"):
        storable_json(nested(65))
    assert completed({"result": "text", "result_json": nested(65)}).output == "text"


@pytest.mark.parametrize(
    ("inputs", "names", "required", "optional"),
    [
        (["budget", "age"], ("budget", "age"), (), ()),
        ([{"name": "topic", "type": "string", "required": True}, "tone"], ("topic", "tone"), ("topic",), ()),
        ([{"name": "topic"}, {"name": "tone", "required": False}], ("topic", "tone"), (), ("tone",)),
        ({"topic": "What about", "tone": None}, ("topic", "tone"), (), ()),
        ({"topic": {"required": False, "name": "other"}, "tone": {}}, ("topic", "tone"), (), ("topic",)),
        ([], (), (), ()),
        (["a\x00", {"name": "\udfff"}], ("a\ufffd", "\ufffd"), (), ()),
    ],
    ids=ascii,
)
def test_inputs_are_read_in_every_form(
    inputs: Any, names: tuple[str, ...], required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    listed = read_inputs({"inputs": inputs, "extra": "ignored"})

    assert (listed.names, listed.required, listed.optional) == (names, required, optional)


@pytest.mark.parametrize(
    "inputs", [["topic", "tone\x00"], {"topic": "What about", "tone\x00": None}], ids=["names", "descriptions"]
)
def test_required_inputs_make_all_others_optional(inputs: Any) -> None:
    told = [read_inputs({"inputs": inputs, "required_inputs": names}) for names in ([], ["tone\x00"], [*inputs])]

    assert [each.required for each in told] == [(), ("tone\ufffd",), ("topic", "tone\ufffd")]
    assert [each.optional for each in told] == [("topic", "tone\ufffd"), ("topic",), ()]


def test_field_of_an_input_overrides_required_inputs() -> None:
    inputs = [{"name": "topic", "required": False}, {"name": "tone", "required": True}, {"name": "size"}]

    told = read_inputs({"inputs": inputs, "required_inputs": ["topic", "size"]})

    assert (told.required, told.optional) == (("tone", "size"), ("topic",))


ODD_SHAPES = [None, "topic", 7, True, {"topic": True}, [7], [None], [["topic"]], [{"name": "topic"}]]


@pytest.mark.parametrize("required", [*ODD_SHAPES, ["topic", 7], ["topic", "zebra"], ["Topic"], [""]], ids=str)
def test_odd_required_inputs_are_ignored(required: Any) -> None:
    for inputs in (["topic", "tone"], {"topic": "", "tone": ""}, [{"name": "topic", "required": True}, "tone"]):
        assert read_inputs({"inputs": inputs, "required_inputs": required}) == read_inputs({"inputs": inputs})


@pytest.mark.parametrize(
    "inputs", [None, "topic", 7, [7], [None], [{}], [{"name": ""}], [{"name": 7}], [""], {"": "x"}]
)
def test_answer_without_inputs_is_rejected(inputs: Any) -> None:
    with pytest.raises(ValueError, match="(?i)input"):
        read_inputs({"inputs": inputs})


def test_list_of_too_many_tasks_is_cut_and_says_so() -> None:
    execution = completed({"result": {"output": "x", "tasks": [{"output": str(n)} for n in range(20_000)]}})

    assert (len(execution.tasks), execution.tasks[-1].output) == (10_000, "19999")
    assert not execution.tasks_complete
