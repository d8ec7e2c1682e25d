"""Scenarios: what a file may say, what goes wrong with it, and what follows from it at a given time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.local import CrewInput, Scenario, ScenarioError, ScenarioTask, When
from airflow_provider_crew.local.scripted import filled, standing


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


def test_scenario_asked_to_fail_waits_for_nothing():
    waiting = Scenario(tasks=(ScenarioTask(name="work"), ScenarioTask(name="ask", human_input=True)))
    end = standing(waiting.failing("out of credit").tasks, 0)

    assert standing(waiting.without_waiting().tasks, 0).over
    assert (end.done, end.over, end.error) == (1, True, "out of credit")


SCENARIO = Scenario(
    inputs=[CrewInput(name="company"), CrewInput(name="year", required=False)],
    tasks=[ScenarioTask(name="work", seconds=5, output="Sound"), ScenarioTask(name="ask", human_input=True)],
    usage={"total_tokens": 1},
    when=[
        When(company="Globex", year=2026, output="Younger"),
        When(company="Globex", output="Older"),
        When(company="Initech", tasks=[ScenarioTask(name="search", error="nothing found")], usage={}),
    ],
)


@pytest.mark.parametrize(
    ("inputs", "output", "tasks", "usage"),
    [
        ({"company": "Acme"}, None, ["work", "ask"], {"total_tokens": 1}),
        ({"company": "Globex"}, "Older", ["work", "ask"], {"total_tokens": 1}),
        ({"company": "Globex", "year": 2026}, "Younger", ["work", "ask"], {"total_tokens": 1}),
        ({"company": "Initech"}, None, ["search"], {}),
    ],
)
def test_first_match_of_all_inputs_replaces_what_it_sets(inputs, output, tasks, usage):
    found = SCENARIO.for_inputs(inputs)

    assert (found.output, [task.name for task in found.tasks], found.usage) == (output, tasks, usage)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("about {topic}.", "about tides."),
        ("{topic} {topic} {unknown}", "tides tides {unknown}"),
        ('{"topic": "{topic}", "n": {count}}', '{"topic": "tides", "n": 3}'),
        ("{} {{topic}} {topic!r} {0} {", "{} {tides} {topic!r} {0} {"),
        ("{evil}", "{topic}"),
    ],
)
def test_only_inputs_are_filled_in(template, expected):
    assert filled(template, {"topic": "tides", "count": 3, "parts": ["a", None], "evil": "{topic}"}) == expected


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_json_output_stays_json(document):
    assert json.loads(filled(json.dumps(document), {"topic": "tides"})) == document
