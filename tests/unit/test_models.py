from __future__ import annotations

from typing import Any

import pytest
from crew_builders import KICKOFF_ID

from airflow_provider_crew.service.models import Completed, Failed, read_execution, read_inputs

MANY_DIGITS = "9" * 5000


def read(body: dict[str, Any]) -> Any:
    return read_execution(body, KICKOFF_ID)


def completed(body: dict[str, Any]) -> Completed:
    execution = read({"status": "completed"} | body)
    assert isinstance(execution, Completed)
    return execution


@pytest.mark.parametrize("nothing", [{}, [], False, 0])
def test_an_empty_result_json_is_a_result(nothing: Any) -> None:
    assert completed({"result": "Nothing was found.", "result_json": nothing}).output_json == nothing
    assert completed({"result": {"output": "Nothing.", "result_json": nothing}}).output_json == nothing


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"error": "", "error_message": "boom"}, id="error_message"),
        pytest.param({"error": None, "result": "boom"}, id="result"),
        pytest.param({"error": "", "error_message": "", "result": "", "message": "boom"}, id="message"),
    ],
)
def test_an_empty_error_does_not_hide_the_reason(body: dict[str, Any]) -> None:
    execution = read({"state": "FAILED"} | body)

    assert isinstance(execution, Failed)
    assert execution.error == "boom"


def test_an_empty_result_does_not_hide_the_final_output() -> None:
    assert completed({"result": "", "final_output": "text"}).output == "text"


@pytest.mark.parametrize(
    ("number", "stored"),
    [
        pytest.param(-(2**63), -(2**63), id="smallest"),
        pytest.param(2**64 - 1, 2**64 - 1, id="greatest"),
        pytest.param(-(2**63) - 1, "-9223372036854775809", id="too small"),
        pytest.param(2**64, "18446744073709551616", id="too great"),
    ],
)
def test_an_integer_too_wide_for_storing_becomes_text(number: int, stored: int | str) -> None:
    assert completed({"result": {"output": {"n": [number]}}}).output_json == {"n": [stored]}


def test_an_integer_too_long_for_python_is_kept_as_text() -> None:
    assert completed({"result": f'{{"n": {MANY_DIGITS}}}'}).output_json == {"n": MANY_DIGITS}


def test_names_of_inputs_can_be_stored() -> None:
    listed = read_inputs({"inputs": ["a\x00", {"name": "\udfff"}]})

    assert listed.names == ("a\ufffd", "\ufffd")
