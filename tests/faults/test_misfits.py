"""The output does not match output_type."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, paid_again, row
from tests.faults.scenes import Code

WRONG, MENDED = Code("dict[str, int]"), Code("dict[str, str]")


def writing(output: str) -> Scenario:
    return LONG.model_copy(update={"output": output})


FERRIES = writing('So:\n```json\n{"topic": "{topic}"}\n```')


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, *SENSOR),
    core=True,
    needs_store=RUN,
    scenario=FERRIES,
    forgotten=dict.fromkeys(RUN, paid_again()),
    retries=1,
    output_type=WRONG,
)
def test_type_mended(scene):
    """The output does not match `output_type`, which is fixed before the task is cleared."""
    scene.start()
    scene.finish()
    scene.wait_for("failed", tries=1)
    assert scene.xcom("crew_result")["output_json"] == {"topic": "ferries"}
    scene.rewrite_dag({"retries": 1, "output_type": MENDED})
    scene.clear("failed")


@row(
    Ends("success", "the result", "completed", kickoffs=2, tries=2),
    ways=RUN,
    scenario=FERRIES,
    retries=1,
    on_invalid_output="retry",
    output_type=WRONG,
)
def test_misfit_retried(scene):
    """The output does not match `output_type`, and `on_invalid_output` is `retry`."""
    scene.start()
    scene.execution()
    scene.crew.scenario = writing('{"topic": 7}')
    scene.finish()
    scene.finish(2)
    scene.wait_until_over()
    assert scene.xcom()["output_json"] == {"topic": 7}


@row(
    Ends("failed", "nothing", "not started", kickoffs=0), ways=RUN, retries=1, output_type="no_such_module.Report"
)
def test_type_not_there(scene):
    """`output_type` cannot be imported."""
    scene.start()
