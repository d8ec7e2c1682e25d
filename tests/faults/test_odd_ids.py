"""The crew returns an unusual kickoff ID."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, SENSOR, Ends, row

UNCERTAIN = Ends("failed", "nothing", "running")


def _named(scene, kickoff_id):
    scene.crew.next_kickoff_id(kickoff_id)
    scene.start()
    scene.finish()


@row("The kickoff ID is a number", COMPLETED, ways=("deferred", "sensor deferred"))
def test_id_number(scene):
    _named(scene, 4711)


@row("The kickoff ID is a text, but not a UUID", COMPLETED)
def test_id_no_uuid(scene):
    _named(scene, "run-7")


@row("The kickoff ID contains a slash, a space and dots", COMPLETED, ways=("deferred", *SENSOR))
def test_id_slash(scene):
    _named(scene, "../run 7/..")


@row("The kickoff ID contains percent signs", COMPLETED)
def test_id_percent(scene):
    _named(scene, "100%2F7%")


@row("The kickoff ID contains non-ASCII letters", COMPLETED)
def test_id_unicode(scene):
    _named(scene, "übung-\u6e2f")


@row("The kickoff ID looks like a template", COMPLETED, ways=("sensor deferred",))
def test_id_template(scene):
    _named(scene, "{{ds}}-{7}")


@row("The kickoff ID is 1,000 characters long", COMPLETED)
def test_id_long(scene):
    _named(scene, "7" * 1000)


@row("The kickoff ID is longer than allowed", UNCERTAIN, retries=1)
def test_id_too_long(scene):
    scene.crew.next_kickoff_id("7" * 1001)
    scene.start()


@row("The kickoff ID is empty", UNCERTAIN, retries=1)
def test_id_empty(scene):
    scene.crew.next_kickoff_id("")
    scene.start()


@row("The answer to the kickoff has no kickoff ID", UNCERTAIN, retries=1)
def test_id_absent(scene):
    scene.crew.faults.answer(200, body={"status": "accepted"}, on="kickoff", after_taken=True)
    scene.start()
