"""The recipes on their page are the files that are tested in a real Airflow, each in full."""

from __future__ import annotations

import re

from tests.integration.pages import PAGES, ROOT, blocks

PAGE = "docs/recipes.md"


def test_the_page_shows_each_recipe_as_it_is():
    shown = dict(
        re.findall(
            r"^\[(example_dags/\S+\.py)\]\(\.\./\1\)\n\n```python\n(.*?)^```\n",
            PAGES[PAGE],
            re.MULTILINE | re.DOTALL,
        )
    )
    files = [*(ROOT / "example_dags/recipes").glob("*.py"), ROOT / "example_dags/crew_asset.py"]

    assert shown == {str(path.relative_to(ROOT)): path.read_text() for path in files}
    (receiver,) = set(blocks(PAGE, "python")) - set(shown.values())
    assert "BaseHTTPRequestHandler" in receiver, "which is run where the crew asks people"
