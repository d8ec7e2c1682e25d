"""The crew returns output that is hard to store, or rejects the token."""

from __future__ import annotations

from tests.airflow_runs import TOKEN
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, row
from tests.faults.scenes import waiting

LARGE = "Ferries cross. " * (20 * 2**20 // 15)


@row(COMPLETED, ways=(*RUN, "sensor deferred"))
def test_unstorable_output(scene):
    """
    The output is 20 MB large. It contains NUL and a lone surrogate, which no database stores, NaN, keys that
    Airflow's serialization reserves, and 60 levels.
    """
    nested: object = "the core"
    for _ in range(60):
        nested = {"in": nested}
    found = {"numbers": [float("nan"), float("inf"), 1.5], "nested": nested, "__version__": 1, "__data__": {}}
    reserved = {"__id__": 1, "__classname__": "os.system", "__var": 2}
    scene.start()
    body = {"state": "SUCCESS", "result": f"a\0b\ud800{LARGE}"}
    scene.crew.set_status(scene.execution(), body | {"result_json": {"all": [reserved], **found, **reserved}})
    scene.finish()
    scene.wait_until_over()
    result = scene.xcom()
    kept = {"__id___": 1, "__classname___": "os.system", "__var_": 2}
    assert result["output"] == f"a\ufffdb\ufffd{LARGE}"
    assert result["output_json"] == {"all": [kept], **found, "numbers": [None, None, 1.5], **kept}


# Searching the log for the token also finds a token that starts with it.
NEW_TOKEN = f"{TOKEN}-of-today"


@row(COMPLETED, ways=(*RUN, "sensor reschedule"), core=("deferred",), before_3_3=(*RUN, "sensor reschedule"))
def test_token_rotated(scene):
    """The token is rotated while the crew runs, and the connection is changed a little later."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.answered("status", 401)
    scene.connect(password=NEW_TOKEN)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, core=("deferred",), retries=1, cost="ended")
def test_odd_failure(scene):
    """A gateway returns 200 once, with an error of its own that reads like a failed execution."""
    waiting(scene)
    scene.crew.faults.answer(200, on="status", body={"status": "error", "error": "upstream request timeout"})
    scene.wait_for("running", tries=2)
    scene.finish()
