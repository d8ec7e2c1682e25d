"""Run the demo, draw what it says, and show its crew in Airflow's page: ``make picture`` writes the pictures."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import requests
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from airflow_provider_crew.local import LocalCrewService, Scenario
from dev.chromium import Chromium
from dev.target import checkout_airflow

_DOCS = Path(__file__).parents[1] / "docs"
_PICTURE = _DOCS / "demo.svg"
_WIDTH = 112
_TAB_PICTURE = _DOCS / "crew-tab.png"
_DAG, _TASK = "crew_in_one_task", "report"
_SCREEN = (1200, 960)
# As crews write: the demo's own crew writes no Markdown.
_REPORT = """# Electric ferries, for {audience}

**In short.** Three ports have ordered shore power, and *the first one* has it.

1. Charging takes seven minutes, at night longer
2. A berth needs 4 MW

| Port | Power | Ready |
|------|-------|-------|
| Søby | 4 MW | yes |
| Fynshav | 2 MW | 2027 |

What to do next: choose one berth, and ask the grid's owner what it needs.
"""
# It would fetch a font from elsewhere for whoever looks at it.
_WEB_FONT = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)


def main() -> None:
    """Draw both."""
    _draw_demo()
    _take_tab()


def _draw_demo() -> None:
    from rich._export_format import CONSOLE_SVG_FORMAT

    done = subprocess.run([sys.executable, "-m", "dev.run", "demo"], check=True, capture_output=True, text=True)
    # The end of what the crew wrote is not needed.
    shown = done.stdout[done.stdout.index("The DAG ") :].partition("\n\n    What changed")[0]
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(f"[bold]$ make demo[/]\n\n{shown}")
    own_font = _WEB_FONT.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, ", "")
    console.save_svg(str(_PICTURE), title="airflow-provider-crew", theme=DIMMED_MONOKAI, code_format=own_font)


def _take_tab() -> None:
    """Take a picture of the tab of a finished task, as a browser shows it."""
    with (
        LocalCrewService(Scenario(dialect="deployed", output=_REPORT)) as service,
        checkout_airflow({"AIRFLOW_CONN_CREW_DEFAULT": service.connection_uri}) as airflow,
    ):
        run_id = airflow.api.trigger(_DAG, {"topic": "electric ferries", "audience": "harbour masters"})
        airflow.api.wait_for(_DAG, run_id, timeout=180)
        with Chromium() as browser:
            page = browser.page()
            page.log_in(airflow.url, requests.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"])
            page.resize(*_SCREEN)
            page.open(f"{airflow.url}/dags/{_DAG}/runs/{quote(run_id)}/tasks/{_TASK}/plugin/crew")
            page.wait_for("document.querySelector('.crew-output')", 60)
            end = "Math.ceil(document.querySelector('.crew-tab').getBoundingClientRect().bottom)"
            page.resize(_SCREEN[0], max(_SCREEN[1], page.evaluate(end)))
            page.save_picture(_TAB_PICTURE)


if __name__ == "__main__":
    main()
