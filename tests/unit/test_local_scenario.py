"""Scenarios: what a file may say, what goes wrong with it, and what follows from it at a given time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.local import CrewInput, Scenario, ScenarioError, ScenarioTask, When
from airflow_provider_crew.local.scripted import filled, standing


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "scenario.toml"

    def write(text):
        file.write_text(text, encoding="utf-8")
        return file

    return write


class TestFile:
    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("tasks = [", "TOML"),
            (
                "[[tasks]]\nname = 'a'\n[[tasks]]\nname = 'b'\nseconds = -1",
                "tasks[1].seconds: Input should be greater than or equal to 0",
            ),
            ("[[faults]]\nkind = 'flood'", "faults[0]: Input tag 'flood' "),
            ("[[tasks]]\nname = 'a'\nerror = 'b'\nhuman_input = 1", "human_input"),
            ("[[when]]\noutput = 'a'", "when[0] names no input"),
            ("[[when]]\ntopic = 'a'\n[[when]]\ntopics = 'a'", "when[1].topics is neither an input"),
            (
                "colour = 'red'\n[[tasks]]\nname = 'a'\ncolour = 'red'",
                ": tasks[0].colour: Extra inputs are not permitted; colour: Extra inputs are not permitted",
            ),
        ],
    )
    def test_that_cannot_be_used_says_what_is_wrong_and_where(self, written, text, complaint):
        file = written(text)

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


class TestWhen:
    SCENARIO = Scenario(
        inputs=[CrewInput(name="company"), CrewInput(name="year", required=False)],
        tasks=[ScenarioTask(name="work", seconds=5, output="Sound"), ScenarioTask(name="ask", human_input=True)],
        usage={"total_tokens": 1},
        when=[
            When(company="Globex", year=2026, output="Younger"),
            When(company="Globex", output="Older"),
            When(
                company="Initech", tasks=[ScenarioTask(name="search", seconds=3, error="nothing found")], usage={}
            ),
        ],
    )

    @pytest.mark.parametrize(
        ("inputs", "output"),
        [
            ({"company": "Acme"}, None),
            ({"company": "Globex"}, "Older"),
            ({"company": "Globex", "year": 2026}, "Younger"),
        ],
    )
    def test_first_match_of_all_inputs_applies(self, inputs, output):
        assert self.SCENARIO.for_inputs(inputs) == self.SCENARIO.model_copy(update={"output": output})

    def test_only_keys_that_are_set_replace_the_scenarios(self):
        globex, initech = (self.SCENARIO.for_inputs({"company": name}) for name in ("Globex", "Initech"))

        assert (globex.tasks, globex.usage) == (self.SCENARIO.tasks, {"total_tokens": 1})
        assert ([task.name for task in initech.tasks], initech.usage) == (["search"], {})


class TestTemplate:
    @pytest.mark.parametrize(
        ("template", "expected"),
        [
            ("about {topic}.", "about tides."),
            ("{topic} {topic} {unknown}", "tides tides {unknown}"),
            ('{"topic": "{topic}", "n": {count}}', '{"topic": "tides", "n": 3}'),
            ("{", "{"),
            ("{} {{topic}} {topic!r} {0}", "{} {tides} {topic!r} {0}"),
        ],
    )
    def test_only_inputs_are_filled_in(self, template, expected):
        assert filled(template, {"topic": "tides", "count": 3, "parts": ["a", None]}) == expected

    @given(st.dictionaries(st.text(min_size=1), st.text()))
    def test_json_output_stays_json(self, document):
        assert json.loads(filled(json.dumps(document), {"topic": "tides"})) == document

    def test_input_is_not_a_template(self):
        assert filled("{a}", {"a": "{b}", "b": "c"}) == "{b}"
