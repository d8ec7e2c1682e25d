"""The crew: a researcher and a writer, three tasks one after the other."""

from typing import Any

from crewai import Agent, Crew, Process, Task
from crewai.project import CrewBase, agent, crew, task

from briefing.model import model


@CrewBase
class Briefing:
    """Researches a topic, writes a briefing for an audience, and checks it."""

    agents: list[Agent]
    tasks: list[Task]
    agents_config: Any
    tasks_config: Any

    @agent
    def researcher(self) -> Agent:
        """Return who finds out."""
        return Agent(config=self.agents_config["researcher"], llm=model())

    @agent
    def writer(self) -> Agent:
        """Return who writes it up."""
        return Agent(config=self.agents_config["writer"], llm=model())

    @task
    def research(self) -> Task:
        """Return what comes first."""
        return Task(config=self.tasks_config["research"])

    @task
    def write(self) -> Task:
        """Return what takes what was found."""
        return Task(config=self.tasks_config["write"])

    @task
    def check(self) -> Task:
        """Return what takes what was written. Its output is that of the crew."""
        return Task(config=self.tasks_config["check"])

    @crew
    def crew(self) -> Crew:
        """Put them together."""
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
