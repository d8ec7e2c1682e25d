"""Run the crew by hand, as CrewAI does."""

from briefing.crew import Briefing


def run() -> None:
    """Print a briefing."""
    print(Briefing().crew().kickoff(inputs={"topic": "electric ferries", "audience": "harbour masters"}))
