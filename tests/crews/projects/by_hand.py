"""Run the example crew by hand, with no service, and write down what CrewAI returns."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from briefing.crew import Briefing

crew = Briefing().crew()
result = crew.kickoff(inputs=json.loads(sys.argv[1]))
returned = result.model_dump(mode="json", exclude={"tasks_output": {"__all__": {"messages"}}})
Path(sys.argv[2]).write_text(json.dumps({"name": crew.name, **returned}), encoding="utf-8")
