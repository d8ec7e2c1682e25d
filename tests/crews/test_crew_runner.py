"""The runner, with the interpreter of real crews: what it says, how it ends, and what it keeps to itself."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.crews.hosting import EXAMPLE, answer, by_hand, crewai_version, hosting, kickoff

pytestmark = pytest.mark.timeout(900)  # an import of crewai takes a minute where others want the processors, too
SECRET = "a-key-that-nobody-may-see"
INPUTS = {"topic": "electric ferries", "audience": "harbour masters"}


def test_a_project_as_crewai_makes_it_runs_as_it_does_by_hand(tmp_path):
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
        assert run.process.wait(60) == 0

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


@pytest.mark.core
def test_a_person_rejects_drafts_and_approves_the_third(tmp_path):
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

    assert (started["said"], goes_on["said"]) == ("task_started", "running")
    assert (first["task"], first["draft"]) == ("write", "A draft")
    assert second["draft"] == "A draft and shorter"
    assert third["draft"] == completed["output"] == "A draft that was rejected"


@pytest.mark.core
def test_a_flow_asks_a_person_and_a_later_run_starts_from_its_state(tmp_path):
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
            assert run.until("failed")[-1]["error"].endswith("Use 1.14.5 or newer.")
            return
        *_, waits = run.until("waits")
        run.do(answer("much shorter", approved=False))
        *_, completed = run.until("completed", "failed")
    assert waits["draft"] == "A draft about ferries"
    assert (completed["output"], completed["state_id"]) == ("given up: much shorter", "second")


def test_a_failure_says_why_and_where_but_no_secret(tmp_path):
    (tmp_path / ".env").write_text(f"SECRET_OF_THE_PROJECT={SECRET}\n", encoding="utf-8")
    with hosting("scripted_crews:failing", tmp_path) as run:
        said = run.until("ready")
        run.kickoff(topic="ferries")
        said += run.until("failed", "completed")
        assert run.process.wait(60) == 0

    assert said[-1]["error"] == "RuntimeError: the model refused the key ***"
    assert said[-1]["task"] == "write"
    assert "scripted_crews.py" in said[-1]["traceback"]
    assert SECRET not in str(said)


def test_what_a_crew_prints_is_no_message_and_there_is_nothing_to_read(tmp_path):
    with hosting("scripted_crews:asking", tmp_path) as run:
        run.until("ready")
        run.kickoff(topic="ferries")
        *_, end = run.until("failed", "completed")

    assert end["error"] == "EOFError: EOF when reading a line"
    assert '"no message, but a print"' in run.log()


def test_an_output_with_fields_is_told_with_its_fields(tmp_path):
    with hosting("scripted_crews:structured", tmp_path) as run:
        run.until("ready")
        run.kickoff(topic="ferries")
        *_, completed = run.until("completed", "failed")

    assert completed["json"] == completed["tasks"][0]["pydantic"] == {"title": "Ferries", "pages": 3}


def test_without_a_service_all_that_the_crew_has_started_ends(tmp_path):
    with hosting("scripted_crews:sleeping", tmp_path) as run:
        run.until("ready")
        run.kickoff(topic="ferries")
        run.until("task_started")
        child = written(tmp_path / "child.pid")
        assert is_alive(child)
        run.leave()
        assert run.process.wait(10) == -signal.SIGKILL
        assert ends(child)


def written(file: Path) -> int:
    for _ in range(300):
        if file.exists() and (told := file.read_text(encoding="utf-8")):
            return int(told)
        time.sleep(0.1)
    raise AssertionError(f"{file} has not been written")


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def ends(pid: int) -> bool:
    for _ in range(100):
        if not is_alive(pid):
            return True
        time.sleep(0.1)
    return False


def test_a_warm_runner_ends_with_its_service(tmp_path):
    with hosting("scripted_crews:reviewed", tmp_path) as run:
        run.until("ready")
        run.leave()
        assert run.process.wait(10) == -signal.SIGKILL


def test_without_crewai_it_says_which_interpreter_to_name(tmp_path):
    with hosting(str(EXAMPLE), tmp_path, python=sys.executable) as run:
        (told,) = run.until("not_loaded")
        assert run.process.wait(60) == 1

    assert told["error"] == f"{sys.executable} has no crewai. Name the project's interpreter by --python."
    assert told["traceback"] == "", "nobody needs to see our own code"


def test_an_old_crewai_is_refused_before_any_kickoff(tmp_path):
    metadata = tmp_path / "crewai-1.9.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: crewai\nVersion: 1.9.3\n", encoding="utf-8")
    with hosting(str(EXAMPLE), tmp_path, python=sys.executable, PYTHONPATH=str(tmp_path)) as run:
        (told,) = run.until("not_loaded")

    assert told["error"] == "crewai 1.9.3 is too old. Use 1.10.1 or newer."


def test_a_project_that_does_not_load_shows_its_own_traceback_but_no_secret(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import os\ndef crew():\n    raise LookupError('no database at ' + os.environ['DATABASE'])\n",
        encoding="utf-8",
    )
    (tmp_path / ".env").write_text(f"DATABASE={SECRET}\n", encoding="utf-8")
    with hosting("broken:crew", tmp_path) as run:
        (told,) = run.until("not_loaded", "ready")
        assert run.process.wait(60) == 1

    assert told["error"] == "LookupError: no database at ***"
    assert 'broken.py", line 3, in crew' in told["traceback"]
    assert SECRET not in str(told)


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({}, "is no project of CrewAI: it has no pyproject.toml with [tool.crewai]."),
        ({"src/two/crew.py": ""}, "has to have one crew, or you name one by its import path. Found: none."),
        (
            {"src/two/crew.py": "class A:\n    is_crew_class = True\nclass B(A): pass\n"},
            "has to have one crew, or you name one by its import path. Found: two.crew:A, two.crew:B.",
        ),
    ],
)
def test_a_folder_has_to_hold_one_crew(tmp_path, files, error):
    project = tmp_path / "project"
    project.mkdir()
    for name, content in files.items():
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text(content, encoding="utf-8")
        (project / "pyproject.toml").write_text('[tool.crewai]\ntype = "crew"\n', encoding="utf-8")
    with hosting(str(project), tmp_path) as run:
        (told,) = run.until("not_loaded", "ready")

    assert told["error"] == f"{project} {error}"


def test_a_flow_without_code_runs(tmp_path):
    if crewai_version() < (1, 15):
        pytest.skip("older versions have none")
    project = tmp_path / "project"
    (project / "src" / "plain").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[tool.crewai]\ntype = "flow"\ndefinition = "src/plain/flow.yaml"\n', encoding="utf-8"
    )
    (project / "src" / "plain" / "flow.yaml").write_text(
        "schema: crewai.flow/v1\nname: Plain\nstate:\n  type: dict\n  default:\n    topic: agents\n"
        "methods:\n  start:\n    start: true\n    do:\n      call: expression\n      expr: state.topic\n",
        encoding="utf-8",
    )
    with hosting(str(project), tmp_path) as run:
        (ready,) = run.until("ready", "not_loaded")
        run.kickoff(topic="ferries")
        *_, completed = run.until("completed", "failed")

    assert (ready["kind"], ready["inputs"]) == ("flow", ["topic"])
    assert completed["output"] == "ferries"


def test_a_crew_without_code_names_defaults_for_its_inputs(tmp_path):
    if crewai_version() < (1, 15):
        pytest.skip("older versions have none")
    project = tmp_path / "project"
    (project / "agents").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[tool.crewai]\ntype = "crew"\ndefinition = "crew.jsonc"\n', encoding="utf-8"
    )
    (project / "agents" / "writer.jsonc").write_text(
        '{"role": "Writer", "goal": "Write for {audience}", "backstory": "-", "llm": "openai/gpt-4.1-mini"}',
        encoding="utf-8",
    )
    (project / "crew.jsonc").write_text(
        '{"name": "Writers", "agents": ["writer"], "inputs": {"topic": "ferries"}, "tasks": [{"name": "write", '
        '"description": "Write about {topic}", "expected_output": "A text", "agent": "writer"}]}',
        encoding="utf-8",
    )
    with hosting(str(project), tmp_path, OPENAI_API_KEY="not-a-key") as run:
        (ready,) = run.until("ready", "not_loaded")

    assert (ready["kind"], ready["name"]) == ("crew", "Writers")
    assert (ready["inputs"], ready["required"]) == (["audience", "topic"], ["audience"])
