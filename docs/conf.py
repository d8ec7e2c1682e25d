"""
Settings of the documentation site: ``make docs``.

The source directory is the whole repository, so links point to the same files here as on GitHub.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pydantic import BaseModel

from airflow_provider_crew import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Airflow logs the path of its configuration.
logging.getLogger("airflow").setLevel(logging.ERROR)

project = "airflow-provider-crew"
version = release = __version__
root_doc = "docs/index"
include_patterns = ["docs/**", "CHANGELOG.md", "SECURITY.md"]
# For contributors, who read them in the repository.
exclude_patterns = ["docs/_build", "docs/decisions", "docs/architecture.md", "docs/releasing.md"]
extensions = ["sphinx.ext.autodoc", "myst_parser", "sphinx_external_toc"]
external_toc_path = "docs/_toc.yml"

# Same heading anchors and `> [!WARNING]` boxes as on GitHub.
myst_heading_anchors = 3
myst_enable_extensions = ["alert"]
# Dashes, but plain quotation marks: readers copy them.
smartquotes_action = "D"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
add_module_names = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"airflow-provider-crew {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("errors.js", {"defer": "defer"})]
html_extra_path = ["_extra"]
html_copy_source = False
# A browser refuses to fetch excerpts from files.
html_show_search_summary = False
html_search_scorer = str(Path(__file__).with_name("search.js"))
html_show_copyright = False


ROOT = Path(__file__).parents[1]
# A link from a page of the API reference to its source.
SOURCE = re.compile(r"`(\S+\.py)\s+<\.\./\.\./\S+>`__")
# A link to an example, alone on its line, whose code isn't below it.
EXAMPLE = re.compile(r"^\[(example_dags/\S+\.py)\]\(\S+\)\n(?!\n```python)", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Connect the handlers that settings cannot express."""
    app.connect("source-read", _replace_links)
    app.connect("autodoc-process-signature", _signature)


def _replace_links(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Show the code of an example below a link to it, and drop links to sources, which GitHub follows."""
    source[0] = SOURCE.sub(r"``\1``", source[0])
    source[0] = EXAMPLE.sub(lambda link: f"{link[0]}\n```python\n{(ROOT / link[1]).read_text()}```\n", source[0])


def _signature(_app: Sphinx, what: str, _name: str, shown: Any, *_: Any) -> tuple[str, str] | None:
    """Hide the arguments of errors and models, whose fields are listed below them."""
    is_model = what == "class" and issubclass(shown, BaseModel)
    return ("", "") if what == "exception" or is_model else None
