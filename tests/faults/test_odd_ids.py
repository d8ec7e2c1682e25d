"""The crew calls an execution by an odd id."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, SENSOR, Ends, row

UNCERTAIN = Ends("failed", "nothing", "goes on")


def _named(scene, kickoff_id):
    scene.crew.next_kickoff_id(kickoff_id)
    scene.start()
    scene.finish()


@row("The kickoff id is a number", COMPLETED, ways=("deferred", "sensor deferred"))
def test_id_number(scene):
    _named(scene, 4711)


@row("The kickoff id is a text, but no UUID", COMPLETED)
def test_id_no_uuid(scene):
    _named(scene, "run-7")


@row("The kickoff id holds a slash, a space and dots", COMPLETED, ways=("deferred", *SENSOR))
def test_id_slash(scene):
    _named(scene, "../run 7/..")


@row("The kickoff id holds percent signs", COMPLETED)
def test_id_percent(scene):
    _named(scene, "100%2F7%")


@row("The kickoff id holds letters beyond ASCII", COMPLETED)
def test_id_unicode(scene):
    _named(scene, "übung-\u6e2f")


@row("The kickoff id looks like a template", COMPLETED, ways=("sensor deferred",))
def test_id_template(scene):
    _named(scene, "{{ds}}-{7}")


@row("The kickoff id is 1,000 characters long", COMPLETED)
def test_id_long(scene):
    _named(scene, "7" * 1000)


@row("The kickoff id is longer than any can be", UNCERTAIN, retries=1)
def test_id_too_long(scene):
    scene.crew.next_kickoff_id("7" * 1001)
    scene.start()


@row("The kickoff id is empty", UNCERTAIN, retries=1)
def test_id_empty(scene):
    scene.crew.next_kickoff_id("")
    scene.start()


@row("The answer to the kickoff holds no id", UNCERTAIN, retries=1)
def test_id_absent(scene):
    scene.crew.faults.answer(200, body={"status": "accepted"}, on="kickoff", after_taken=True)
    scene.start()
