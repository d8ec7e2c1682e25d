"""The crew waits for human input, ends unusually, or rejects the token."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.airflow_runs import TOKEN
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, row
from tests.faults.scenes import Code, waiting

LIVE = LONG.model_copy(update={"dialect": "deployed"})
ASKS = LIVE.model_copy(
    update={
        "tasks": (
            ScenarioTask(name="research_task", agent="Researcher", human_input=True, output="Notes on {topic}"),
            ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="Briefing: {topic}"),
        )
    }
)


def asked(scene) -> None:
    """Start a run, and return when the crew waits for human input and the task has polled since."""
    if scene.way.startswith("sensor"):
        scene.crew.scenario = LIVE  # a sensor has to see the execution first
    scene.start()
    scene.execution()
    if scene.way.startswith("sensor"):
        if scene.way == "sensor deferred":
            scene.wait_for("deferred")
        scene.looked()
        scene.waits_for_a_person()
    scene.looked()


def answered(scene) -> None:
    """Answer the crew, and let it complete at once."""
    if scene.way.startswith("sensor"):
        scene.crew.set_status(scene.execution())
    else:
        scene.crew.approve(scene.execution())
    scene.finish()


@row(
    COMPLETED,
    ways=(*RUN, *SENSOR),
    core=("deferred", "sensor reschedule"),
    scenario=ASKS,
    needs_store=("sensor reschedule",),
)
def test_person_answers(scene):
    """A crew waits for human input, and gets it."""
    asked(scene)
    scene.looked()
    answered(scene)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "sensor deferred"),
    core=("deferred",),
    needs_store=RUN,
    scenario=ASKS,
    max_outage=20,
    forgotten=RUN,
    cost="running",
)
def test_person_takes_too_long_and_a_clear(scene):
    """A crew waits for human input longer than `max_outage`, and the task is cleared before the answer."""
    asked(scene)
    scene.clear("failed")
    scene.looked()
    answered(scene)


FAILING = Scenario.model_validate(
    {"inputs": [{"name": "topic"}], "tasks": [{"name": "writing_task", "error": "out of credit"}]}
)
FERRIES = LONG.model_copy(update={"output": 'So:\n```json\n{"topic": "{topic}"}\n```'})
LARGE = "Ferries cross. " * (20 * 2**20 // 15)


@row(Ends("skipped", "nothing", "failed"), ways=SENSOR, scenario=FAILING, soft_fail=True, retries=2)
def test_crew_of_a_soft_sensor_fails(scene):
    """The crew fails, and a sensor with `soft_fail` waits for it."""
    scene.start()


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, *SENSOR),
    core=("deferred", "sensor reschedule"),
    needs_store=RUN,
    scenario=FERRIES,
    forgotten=RUN,
    retries=1,
    output_type=Code("dict[str, int]"),
    cost="ended",
)
def test_type_mended(scene):
    """The output does not match `output_type`, which is fixed before the task is cleared."""
    scene.start()
    scene.finish()
    scene.wait_for("failed", tries=1)
    assert scene.xcom("crew_result")["output_json"] == {"topic": "ferries"}
    scene.rewrite_dag({"retries": 1, "output_type": Code("dict[str, str]")})
    scene.clear("failed")


@row(COMPLETED, ways=(*RUN, "sensor deferred"), scenario=LONG.model_copy(update={"output": LARGE}))
def test_output_of_20_mb(scene):
    """The output is 20 MB large."""
    scene.start()
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output"] == LARGE


@row(COMPLETED, ways=RUN)
def test_unstorable_output(scene):
    """
    The output contains NUL and a lone surrogate, which no database stores, NaN, keys that Airflow's serialization
    reserves, and 60 levels.
    """
    nested: object = "the core"
    for _ in range(60):
        nested = {"in": nested}
    found = {"numbers": [float("nan"), float("inf"), 1.5], "nested": nested, "__version__": 1, "__data__": {}}
    reserved = {"__id__": 1, "__classname__": "os.system", "__var": 2}
    scene.start()
    body = {"state": "SUCCESS", "result": "a\0b\ud800c", "result_json": {"all": [reserved], **found, **reserved}}
    scene.crew.set_status(scene.execution(), body)
    scene.finish()
    scene.wait_until_over()
    result = scene.xcom()
    kept = {"__id___": 1, "__classname___": "os.system", "__var_": 2}
    assert result["output"] == "a\ufffdb\ufffdc"
    assert result["output_json"] == {"all": [kept], **found, "numbers": [None, None, 1.5], **kept}


# Searching the log for the token also finds a token that starts with it.
NEW_TOKEN = f"{TOKEN}-of-today"


def disconnect(scene) -> None:
    scene.airflow.api.delete(f"connections/{scene.connection}")


@row(COMPLETED, ways=(*RUN, "sensor reschedule"), core=("deferred",))
def test_token_rotated(scene):
    """The token is rotated while the crew runs, and the connection is changed a little later."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.answered_with(401)
    scene.connect(password=NEW_TOKEN)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, max_outage=8, forgotten=("deferred",), cost="running")
def test_connection_deleted_for_long(scene):
    """
    The connection is deleted before the triggerer reads it. When the task has failed, it is restored and the task
    is cleared.
    """
    scene.crew.faults.hang(on="status", seconds=15)
    scene.start()
    scene.asked("status")
    disconnect(scene)
    scene.wait_until_over()
    scene.connect()
    scene.run.clear(scene.task_id)
    scene.finish()
