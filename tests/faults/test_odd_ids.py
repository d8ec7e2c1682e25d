"""The crew returns an unusual kickoff ID."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, SENSOR, Ends, row

UNCERTAIN = Ends("failed", "nothing", "running")


def _named(scene, kickoff_id):
    scene.crew.next_kickoff_id(kickoff_id)
    scene.start()
    scene.finish()


@row(COMPLETED, ways=("deferred", "sensor deferred"))
def test_id_number(scene):
    """The kickoff ID is a number."""
    _named(scene, 4711)


@row(COMPLETED)
def test_id_no_uuid(scene):
    """The kickoff ID is a text, but not a UUID."""
    _named(scene, "run-7")


@row(COMPLETED, ways=("deferred", *SENSOR))
def test_id_slash(scene):
    """The kickoff ID contains a slash, a space and dots."""
    _named(scene, "../run 7/..")


@row(COMPLETED)
def test_id_percent(scene):
    """The kickoff ID contains percent signs."""
    _named(scene, "100%2F7%")


@row(COMPLETED)
def test_id_unicode(scene):
    """The kickoff ID contains non-ASCII letters."""
    _named(scene, "übung-\u6e2f")


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


@row(UNCERTAIN, retries=1)
def test_id_empty(scene):
    """The kickoff ID is empty."""
    scene.crew.next_kickoff_id("")
    scene.start()


@row(UNCERTAIN, retries=1)
def test_id_absent(scene):
    """The answer to the kickoff has no kickoff ID."""
    scene.crew.faults.answer(200, body={"status": "accepted"}, on="kickoff", after_taken=True)
    scene.start()
