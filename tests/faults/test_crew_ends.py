"""The crew fails, or returns an unusual output or kickoff ID."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, row
from tests.faults.scenes import Code

FAILING = Scenario.model_validate(
    {"inputs": [{"name": "topic"}], "tasks": [{"name": "writing_task", "error": "out of credit"}]}
)
FERRIES = LONG.model_copy(update={"output": 'So:\n```json\n{"topic": "{topic}"}\n```'})
LARGE = "Ferries cross. " * (20 * 2**20 // 15)


@row(Ends("success", "the result", "completed", kickoffs=2, tries=2), ways=RUN, scenario=FAILING, retries=1)
def test_crew_fails_once(scene):
    """The crew fails, and the task has a retry."""
    scene.start()
    scene.execution()
    scene.crew.scenario = LONG
    scene.finish(2)


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
)
def test_type_mended(scene):
    """The output does not match `output_type`, which is fixed before the task is cleared."""
    scene.start()
    scene.finish()
    scene.wait_for("failed", tries=1)
    assert scene.xcom("crew_result")["output_json"] == {"topic": "ferries"}
    scene.rewrite_dag({"retries": 1, "output_type": Code("dict[str, str]")})
    scene.clear("failed")


@row(COMPLETED, ways=("deferred", *SENSOR))
def test_odd_id(scene):
    """The kickoff ID contains a slash, a space, dots and a template."""
    scene.crew.next_kickoff_id("../run 7/..{{ds}}-{7}")
    scene.start()
    scene.finish()


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
