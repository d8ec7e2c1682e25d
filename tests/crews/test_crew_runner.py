"""The crew runner with real crews: its messages, its end, and the secrets it masks."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.airflow_runs import eventually
from tests.crews.hosting import EXAMPLE, INPUTS, PYTHON, answer, by_hand, crewai_version, exists, hosting, kickoff

SECRET = "a-key-that-nobody-may-see"


def test_project_runs_as_it_does_by_hand(tmp_path):
    returned = by_hand(tmp_path, **INPUTS)
    with hosting(str(EXAMPLE), tmp_path) as run:
        assert run.hear() == {
            "said": "ready",
            "kind": "crew",
            "name": returned["name"],
            "inputs": ["audience", "topic"],
            "required": ["audience", "topic"],
            "of": 3,
            "crewai": ".".join(map(str, crewai_version())),
        }
        run.kickoff(**INPUTS)
        *steps, completed = run.until("completed")
        assert run.hear() is None
        assert run.process.wait() == 0

    assert [(step["said"], step["task"]) for step in steps] == [
        (said, task) for task in ("research", "write", "check") for said in ("task_started", "task_completed")
    ]
    assert [(step["index"], step["of"]) for step in steps[::2]] == [(1, 3), (2, 3), (3, 3)]
    assert {step["agent"] for step in steps} == {"Researcher of electric ferries", "Writer for harbour masters"}
    assert completed["output"] == returned["raw"]
    assert completed["tasks"] == returned["tasks_output"]
    assert completed["usage"] == returned["token_usage"]
    assert completed["usage"]["total_tokens"] > 0
    assert [step["output"] for step in steps[1::2]] == [task["raw"] for task in returned["tasks_output"]]
    assert [step["description"] for step in steps[1::2]] == [task["description"] for task in completed["tasks"]]
    assert (completed["json"], completed["state_id"]) == (None, None)


def test_person_rejects_drafts_and_approves_the_third(tmp_path):
    with hosting("scripted_crews:reviewed", tmp_path) as run:
        run.until("ready")
        run.do(kickoff(topic="ferries"), answer(approved=True))
        started, first = run.until("waits")
        # Whoever clicks twice must not approve a draft that nobody has seen.
        run.do(answer("shorter", approved=False), answer(approved=True))
        goes_on, second = run.until("waits")
        run.do(answer(approved=False))
        *_, third = run.until("waits")
        run.do(answer(approved=True))
        *_, completed = run.until("completed", "failed")

    assert (started["said"], goes_on["said"]) == ("task_started", "goes_on")
    assert (first["task"], first["draft"]) == ("write", "A draft")
    assert second["draft"] == "A draft and shorter"
    assert third["draft"] == completed["output"] == "A draft that was rejected"


def test_flow_asks_a_person_and_its_state_is_restored(tmp_path):
    with hosting("scripted_crews:Reviewing", tmp_path) as run:
        (ready,) = run.until("ready")
        run.kickoff("first", topic="ferries")
        *_, waits = run.until("waits")
        run.do(answer(approved=True))
        *_, completed = run.until("completed", "failed")
    assert (ready["kind"], ready["inputs"], ready["required"]) == ("flow", ["runs", "topic"], [])
    assert (waits["task"], waits["draft"], waits["message"]) == ("draft", "A draft about ferries", "Is this good?")
    assert completed["json"] == {"published": "ferries", "runs": 1}
    assert completed["state_id"] == "first"

    with hosting("scripted_crews:Reviewing", tmp_path) as run:
        run.until("ready")
        run.kickoff("second", restore_from="first")
        if crewai_version() < (1, 14, 5):
            assert run.until("failed")[-1]["error"].count("1.14.5")
            return
        *_, waits = run.until("waits")
        run.do(answer("much shorter", approved=False))
        *_, completed = run.until("completed", "failed")
    assert waits["draft"] == "A draft about ferries"
    assert (completed["output"], completed["state_id"]) == ("given up: much shorter", "second")


def test_failure_names_reason_and_task_but_no_secret(tmp_path):
    (tmp_path / ".env").write_text(f"SECRET_OF_THE_PROJECT={SECRET}\n", encoding="utf-8")
    with hosting("scripted_crews:failing", tmp_path) as run:
        said = run.until("ready")
        run.kickoff(topic="ferries")
        said += run.until("failed", "completed")
        assert run.process.wait() == 0

    assert said[-1]["error"] == "RuntimeError: the model refused the key ***"
    assert said[-1]["task"] == "write"
    assert "scripted_crews.py" in said[-1]["traceback"]
    assert SECRET not in str(said)


def test_structured_output_keeps_its_fields(tmp_path):
    with hosting("scripted_crews:structured", tmp_path) as run:
        run.until("ready")
        run.kickoff(topic="ferries")
        *_, completed = run.until("completed", "failed")

    assert completed["json"] == completed["tasks"][0]["pydantic"] == {"title": "Ferries", "pages": 3}


def test_children_of_the_crew_end_with_the_service(tmp_path):
    with hosting("scripted_crews:sleeping", tmp_path) as run:
        run.until("ready")
        run.kickoff(topic="ferries")
        run.until("task_started")
        file = tmp_path / "child.pid"
        child = int(eventually(lambda: file.exists() and file.read_text(encoding="utf-8")))
        assert exists(child)
        run.leave()
        assert run.process.wait() == -signal.SIGKILL
        eventually(lambda: not exists(child))


_BROKEN = "import os\ndef crew():\n    raise LookupError('no database at ' + os.environ['DATABASE'])\n"
_METADATA = "crewai-1.9.3.dist-info/METADATA"
_OLD = {_METADATA: "Metadata-Version: 2.1\nName: crewai\nVersion: 1.9.3\n"}
_PYPROJECT = {"pyproject.toml": '[tool.crewai]\ntype = "crew"\n'}
_TWO_CREWS = "class A:\n    is_crew_class = True\nclass B(A): pass\n"


@pytest.mark.parametrize(
    ("files", "project", "python", "error", "traceback"),
    [
        ({}, str(EXAMPLE), sys.executable, [sys.executable, "--python"], None),
        (_OLD, str(EXAMPLE), sys.executable, ["1.9.3", "1.10.1"], None),
        (
            {"broken.py": _BROKEN, ".env": f"DATABASE={SECRET}\n"},
            "broken:crew",
            PYTHON,
            ["LookupError: no database at ***"],
            'broken.py", line 3, in crew',
        ),
        ({}, "", PYTHON, ["pyproject.toml", "[tool.crewai]"], None),
        (_PYPROJECT | {"src/two/crew.py": ""}, "", PYTHON, [], None),
        (_PYPROJECT | {"src/two/crew.py": _TWO_CREWS}, "", PYTHON, ["two.crew:A", "two.crew:B"], None),
    ],
    ids=["no crewai", "an old crewai", "broken", "no project", "no crew", "two crews"],
)
def test_project_that_cannot_run_says_why(tmp_path, files, project, python, error, traceback):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    paths = {"PYTHONPATH": str(tmp_path)} if files is _OLD else {}
    with hosting(project or str(tmp_path), tmp_path, python=python, **paths) as run:
        (told,) = run.until("not_loaded", "ready")
        assert run.process.wait() == 1

    assert [each for each in (*error, *([] if project else [str(tmp_path)])) if each not in told["error"]] == []
    assert (traceback or "") in told["traceback"]
    assert traceback or not told["traceback"], "nobody needs to see our own code"
    assert SECRET not in str(told)


def test_crew_without_code_has_input_defaults(tmp_path):
    if crewai_version() < (1, 15):
        pytest.skip("older versions have none")
    project = Path(__file__).with_name("projects") / "without_code"
    with hosting(str(project), tmp_path, OPENAI_API_KEY="not-a-key") as run:
        (ready,) = run.until("ready", "not_loaded")

    assert (ready["kind"], ready["name"]) == ("crew", "Writers")
    assert (ready["inputs"], ready["required"]) == (["audience", "topic"], ["audience"])
