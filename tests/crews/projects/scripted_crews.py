"""Crews and flows that the tests host. Their models follow scripts, and cost nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from crewai import Agent, BaseLLM, Crew, Flow, Task
from crewai.flow import human_feedback, listen, persist, start
from pydantic import BaseModel


class Scripted(BaseLLM):
    """Says the same every time, and in a new draft, what a person said of the one before."""

    def call(self, messages, *_args, **_options):
        prompt = messages if isinstance(messages, str) else str(messages[-1]["content"])
        if "approved, rejected" in prompt:  # CrewAI asks what a person means
            return "rejected" if "shorter" in prompt else "approved"
        said = " that was rejected" if "was rejected" in prompt else " and shorter" if "shorter" in prompt else ""
        return f"Thought: I now can give a great answer\nFinal Answer: A draft{said}"


class Sleeping(BaseLLM):
    """Never answers, and has started a process that never ends."""

    def call(self, *_args, **_options):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("child.pid").write_text(str(child.pid), encoding="utf-8")
        print("the child runs", flush=True)
        time.sleep(600)


class Failing(BaseLLM):
    """Fails, and tells a secret of the environment."""

    def call(self, *_args, **_options):
        import os

        raise RuntimeError(f"the model refused the key {os.environ['SECRET_OF_THE_PROJECT']}")


class Report(BaseModel):
    """An output with fields."""

    title: str
    pages: int


class Structured(BaseLLM):
    """Answers with JSON."""

    def call(self, *_args, **_options):
        return 'Thought: I now can give a great answer\nFinal Answer: {"title": "Ferries", "pages": 3}'


def crew_with(model: type[BaseLLM], **task: object) -> Crew:
    agent = Agent(
        role="Writer", goal="Write", backstory="You write.", llm=model(model="scripted"), max_retry_limit=0
    )
    written = Task(name="write", description="Write about {topic}", expected_output="A text", agent=agent, **task)
    return Crew(agents=[agent], tasks=[written], name="writers")


def reviewed() -> Crew:
    return crew_with(Scripted, human_input=True)


def sleeping() -> Crew:
    return crew_with(Sleeping)


def failing() -> Crew:
    return crew_with(Failing)


def structured() -> Crew:
    return crew_with(Structured, output_pydantic=Report)


class Counted(BaseModel):
    """What a flow remembers."""

    topic: str = "nothing"
    runs: int = 0


@persist()
class Reviewing(Flow[Counted]):
    """Writes, asks a person, and publishes."""

    @start()
    @human_feedback(
        message="Is this good?",
        emit=["approved", "rejected"],
        llm=Scripted(model="scripted"),
        default_outcome="rejected",
    )
    def draft(self):
        self.state.runs += 1
        return f"A draft about {self.state.topic}"

    @listen("approved")
    def publish(self):
        return {"published": self.state.topic, "runs": self.state.runs}

    @listen("rejected")
    def give_up(self):
        return f"given up: {self.last_human_feedback.feedback}"
