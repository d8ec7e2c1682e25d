"""The worker's processes die."""

from __future__ import annotations

from rows import RUN, Ends, row

REATTACHED = "Execution {id}: kicked off by an earlier try"


@row(
    "The worker is killed before the kickoff is sent",
    Ends("success", ("Execution {id}: kicked off",), "the result", "has completed", tries=2),
    ways=RUN,
    core=True,
    retries=1,
)
def test_killed_before_the_kickoff(scene):
    scene.crew.faults.hang(on="inputs", seconds=60)
    scene.start()
    scene.asked("inputs")
    scene.kill()
    scene.finish()


@row(
    "The worker is killed while it waits for the answer to a kickoff that the crew has taken",
    Ends(
        "failed",
        ("An earlier try sent a kickoff and ended before it knew the answer. It is not known whether",),
        "nothing",
        "goes on",
        tries=2,
    ),
    ways=RUN,
    core=True,
    retries=3,
)
def test_killed_before_the_answer(scene):
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()
    scene.execution()
    scene.kill()


@row(
    "The worker is killed between the kickoff and the deferral",
    Ends("success", (REATTACHED,), "the result", "has completed", tries=2),
    ways=RUN,
    core=True,
    retries=1,
)
def test_killed_before_the_deferral(scene):
    scene.crew.faults.hang(on="status", seconds=60)
    scene.start()
    scene.execution()
    scene.asked("status")
    scene.kill()
    scene.finish()
