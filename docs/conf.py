"""
How the documentation becomes a site: ``make docs``.

The source is the whole repository, so that the links of the pages lead to the same files here as on GitHub.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pydantic import BaseModel

from airflow_provider_crew import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Airflow tells where it reads its configuration.
logging.getLogger("airflow").setLevel(logging.ERROR)

project = "airflow-provider-crew"
version = release = __version__
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = ["docs/_build"]
extensions = ["sphinx.ext.autodoc", "myst_parser", "sphinx_external_toc"]
external_toc_path = "docs/_toc.yml"

# As GitHub makes the anchors of headings.
myst_heading_anchors = 3
# Dashes, but no other quotation marks than those that people are to copy.
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
html_extra_path = ["_extra"]
html_copy_source = False
# An excerpt would be fetched from the page, which a browser refuses for a file.
html_show_search_summary = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Tell Sphinx what its settings cannot."""
    app.connect("autodoc-process-signature", _signature)


def _signature(_app: Sphinx, what: str, _name: str, shown: Any, *_: Any) -> tuple[str, str] | None:
    """Show no arguments of what nobody but this package makes, or what names its fields below."""
    is_model = what == "class" and issubclass(shown, BaseModel)
    return ("", "") if what == "exception" or is_model else None
