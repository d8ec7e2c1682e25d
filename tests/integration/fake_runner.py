"""
A runner without CrewAI, started by the local service in place of the real one. It plays ``story.json``.

The file is in the folder of the project. Its steps are messages to say as they are, and besides ``{"do": "wait"}``
for an answer, ``{"do": "print", "text": …}`` and ``{"do": "until", "file": …}``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from queue import Queue
from typing import Any


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", required=True)
    parser.add_argument("--read", type=int, required=True)
    parser.add_argument("--write", type=int, required=True)
    options = parser.parse_args()
    project = Path(options.project)
    story = json.loads((project / "story.json").read_text())
    heard: Queue[Any] = Queue()
    threading.Thread(target=listen, args=(options.read, heard), daemon=True).start()

    def say(message):
        os.write(options.write, json.dumps(message).encode() + b"\n")

    with (project / "started").open("a") as started:
        started.write(f"{os.getpid()}\n")
    if "not_loaded" in story:
        say({"said": "not_loaded", **story["not_loaded"]})
        return 1
    said = {"kind": "crew", "name": "a crew", "inputs": ["topic"], "required": ["topic"], "of": 2, "crewai": "1.0"}
    say({"said": "ready", **said, **story.get("ready", {})})
    kickoff = heard.get()
    told = {**kickoff, "pid": os.getpid(), "stdin": sys.stdin.read(), "storage": os.environ["CREWAI_STORAGE_DIR"]}
    with (project / "kickoffs").open("a") as kickoffs:
        kickoffs.write(json.dumps(told) + "\n")
    play(project, story["steps"], say, heard)
    return 0


def play(project, steps, say, heard):
    for step in steps:
        match step:
            case {"do": "print", "text": text}:
                print(text, flush=True)
            case {"do": "until", "file": name}:
                while not (project / name).exists():
                    time.sleep(0.02)
            case {"do": "wait"}:
                wait(step, say, heard)
            case _:
                say(step)


def wait(step, say, heard):
    draft, approved = step["draft"], False
    while not approved:
        say({"said": "waits", "task": step["task"], "draft": draft, "message": "Approve this."})
        answer = heard.get()
        say({"said": "running"})
        approved = answer["approved"]
        draft = f"{step['draft']}, {answer['feedback']}"


def listen(read, heard):
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            heard.put(json.loads(line))
    os._exit(1)


def write_project(folder: Path, **story: Any) -> None:
    """Write the story and the interpreter, which runs another runner than it is told to."""
    (folder / "story.json").write_text(json.dumps(story))
    python = folder / ".venv/bin/python"
    if not python.exists():
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {__file__} "$@"\n')
        python.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
