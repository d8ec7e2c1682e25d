"""The crew returns an unusual kickoff ID."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, SENSOR, Ends, row

UNCERTAIN = Ends("failed", "nothing", "running")


def _named(scene, kickoff_id):
    scene.crew.next_kickoff_id(kickoff_id)
    scene.start()
    scene.finish()


@row(COMPLETED, ways=("deferred", *SENSOR))
def test_id_slash(scene):
    """The kickoff ID contains a slash, a space and dots."""
    _named(scene, "../run 7/..")


@row(COMPLETED, ways=("sensor deferred",))
def test_id_template(scene):
    """The kickoff ID looks like a template."""
    _named(scene, "{{ds}}-{7}")


@row(COMPLETED)
def test_id_long(scene):
    """The kickoff ID is 1,000 characters long."""
    _named(scene, "7" * 1000)


@row(UNCERTAIN, retries=1)
def test_id_too_long(scene):
    """The kickoff ID is longer than allowed."""
    scene.crew.next_kickoff_id("7" * 1001)
    scene.start()
