"""Markdown on the pages of the local server."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    "part", ["[", "[a](", "[a](http://", "**a", "`", "# ", "- ", "|", "| - |\n", "a\n", " ", "-", "\\|", "<", "1"]
)
def test_long_text_takes_linear_time(part):
    begin = time.process_time()
    html_of(part * (200_000 // len(part)))

    assert time.process_time() - begin < 5
