"""Run the demo and draw what it says: ``make picture`` writes the README's picture."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

_PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"
_WIDTH = 102
# It would fetch a font from elsewhere for whoever looks at it.
_WEB_FONT = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)


def main() -> None:
    """Draw it."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    done = subprocess.run([sys.executable, "-m", "dev.demo"], check=True, capture_output=True, text=True)
    # The end of what the crew wrote is not needed.
    shown = done.stdout[done.stdout.index("The DAG ") :].partition("\n\n    What changed")[0]
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(f"[bold]$ make demo[/]\n\n{shown}")
    own_font = _WEB_FONT.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, ", "")
    console.save_svg(str(_PICTURE), title="airflow-provider-crew", theme=DIMMED_MONOKAI, code_format=own_font)


if __name__ == "__main__":
    main()
