"""A batch whose object store loses, delays, doubles and refuses writes."""

from __future__ import annotations

from tests.faults.odd_store import ACCESS, BUCKET, CLIENT, odd_store
from tests.faults.rows import Ends, row

_ROWS = 12
_AT_A_TIME = 4


@row(
    Ends("success", "the result", "completed", kickoffs=_ROWS, tries=2),
    ways=("deferred", "sync"),
    executor="celery",
    core=True,
    batch=_ROWS,
    retries=1,
)
def test_batch_killed_while_its_store_fails(scene):
    """The worker of a batch is killed, or the task is cleared while it is deferred."""
    with odd_store() as store:
        scene.code = CLIENT.format(url=store.url, access=ACCESS)
        path = f"s3://{BUCKET}/{scene.dag_id}"
        scene.rewrite_dag({"deferrable": scene.way == "deferred", "retries": 1, "result_path": path})
        scene.start(until="deferred" if scene.way == "deferred" else "")
        scene.execution(_AT_A_TIME)
        scene.looked(_AT_A_TIME)
        if scene.way == "deferred":
            scene.run.clear(scene.task_id)
        else:
            scene.kill()
        scene.wait_until_over(finishing=True)
        assert {"lost", "late", "double", "refused"} <= store.suffered.keys(), store.suffered
        store.copy(scene.dag_id, scene.results)
