"""The local server: what importing it costs, scenarios, and Markdown on its pages."""

import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.local import Scenario, ScenarioError
from airflow_provider_crew.local.wire.markdown import html_of

TAGS = {
    *("p", "h3", "h4", "h5", "h6", "hr", "pre", "code", "strong", "a", "ol", "li"),
    *("div", "table", "tr", "th", "td"),
}
MARKUP = st.text(alphabet="<>&\"'`*_#|[]()-+.:/~\\ \n\tahtps1", max_size=300)


class Tags(HTMLParser):
    """The tags, attributes and addresses in a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.names, self.attributes, self.addresses = set(), set(), []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.addresses += [value for name, value in attributes if name == "href"]


@given(MARKUP | st.text())
def test_no_text_adds_other_tags_or_addresses(text):
    tags = Tags(html_of(text))

    assert tags.names <= TAGS
    assert tags.attributes <= {"href", "rel", "class", "value", "data-level"}
    assert all(address.startswith(("http://", "https://")) for address in tags.addresses)


def test_invalid_file_says_what_is_wrong_and_where(tmp_path, evaluated):
    def load(text):
        file = tmp_path / "scenario.toml"
        file.write_text(text)
        with pytest.raises(ScenarioError) as caught:
            Scenario.load(file)
        return str(caught.value).removeprefix(f"{file}: ")

    evaluated("scenarios.txt", load=load)


def test_pytest_plugin_loads_nothing_heavy():
    heavy = {"aiohttp", "pydantic", "airflow", "asyncio", "ssl"}
    script = (
        "import pytest, sys; before = set(sys.modules); import airflow_provider_crew.local.pytest_plugin; "
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert "airflow_provider_crew" in loaded.split()
    assert heavy.isdisjoint(loaded.split())
