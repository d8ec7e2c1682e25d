"""
What Python's garbage collector walks through for each execution that waits, side by side.

``python -m benchmarks.waiting ours http`` shows for one contestant what kinds of objects these are.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from benchmarks import stub
from benchmarks.pollers import CONTESTANTS, NAMES
from benchmarks.polling import log_as_a_triggerer, started, warm_up
from benchmarks.polls import SCHEMES, environment
from benchmarks.report import Figure, Table

_COMMAND = (sys.executable, "-m", "benchmarks.waiting")
_HALF = 200
# No execution is polled twice before it is counted, and whoever puts off a first poll does so for less.
_INTERVAL = 120.0
_SETTLING = 20.0
_STARTING = 2.0
_FEW = 0.1

_METHOD = f"""\
Each contestant runs alone in a process, as above. {_HALF} executions wait and have been polled once, then \
{_HALF} more. The count is the number of objects of `gc.get_objects()` that the second {_HALF} add after a full \
collection, so objects that exist once, such as connections, do not count. No time is measured."""


def measure(rounds: int) -> list[Table]:
    """Count for everybody who waits on asyncio, over http; the objects are the same over TLS."""
    counts = {
        name: [sum(objects_of(name, "http").values()) for _ in range(rounds)]
        for name in CONTESTANTS
        if name != "aiohttp_spread"
    }
    rows = [[NAMES[name], Figure.of(found)] for name, found in counts.items()]
    return [Table("Objects for an execution that waits", _METHOD, ("contestant", "objects"), rows)]


def objects_of(contestant: str, scheme: str) -> dict[str, float]:
    """Return what one execution adds, by the kind of object."""
    with tempfile.TemporaryDirectory() as folder, stub.running(scheme, Path(folder)) as service:
        done = subprocess.run(
            [*_COMMAND, contestant, scheme, "--stub", json.dumps(asdict(service))],
            env=environment(service, Path(folder)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _count(contestant: str, service: stub.Stub) -> None:
    async with CONTESTANTS[contestant](service) as watch:
        await warm_up(watch, service)
        tasks: list[asyncio.Task[object]] = []
        counts = []
        for _ in range(2):
            for _ in range(_HALF):
                tasks.append(started(watch, len(tasks) + 1, _INTERVAL))
                await asyncio.sleep(_STARTING / _HALF)
            await asyncio.sleep(_SETTLING)
            gc.collect()
            counts.append(Counter(type(each).__qualname__ for each in gc.get_objects()))
        if ended := [task for task in tasks if task.done()]:
            raise RuntimeError(f"{len(ended)} ended by themselves: {ended[0]!r}")
    print(json.dumps({kind: (number - counts[0][kind]) / _HALF for kind, number in counts[1].items()}), flush=True)
    os._exit(0)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("scheme", choices=SCHEMES)
    parser.add_argument("--stub", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stub:
        log_as_a_triggerer()
        asyncio.run(_count(arguments.contestant, stub.Stub(**json.loads(arguments.stub))))
    found = objects_of(arguments.contestant, arguments.scheme)
    print(f"{sum(found.values()):.1f} objects for an execution that waits:")
    for kind, number in sorted(found.items(), key=lambda each: -each[1]):
        if number >= _FEW:
            print(f"{number:6.2f} {kind}")


if __name__ == "__main__":
    _main()
