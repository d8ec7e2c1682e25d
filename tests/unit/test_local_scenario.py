"""Scenarios: what a file may say, what goes wrong with it, and what follows from it at a given time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.local import Scenario, ScenarioError
from airflow_provider_crew.local.scripted import filled


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tasks = [", "TOML"),
        ("[[tasks]]\nname = 'a'\n[[tasks]]\nname = 'b'\nseconds = -1", "tasks[1].seconds: "),
        ("[[faults]]\nkind = 'flood'", "faults[0]: Input tag 'flood' "),
        ("[[tasks]]\nname = 'a'\nerror = 'b'\nhuman_input = 1", "human_input"),
        ("[[when]]\noutput = 'a'", "when[0] names no input"),
        ("[[when]]\ntopic = 'a'\n[[when]]\ntopics = 'a'", "when[1].topics is neither an input"),
    ],
)
def test_invalid_file_says_what_is_wrong_and_where(tmp_path, text, complaint):
    file = tmp_path / "scenario.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        Scenario.load(file)

    assert str(caught.value).startswith(str(file))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_json_output_stays_json(document):
    assert json.loads(filled(json.dumps(document), {"topic": "tides"})) == document
