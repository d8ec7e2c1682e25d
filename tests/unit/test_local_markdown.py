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
LINK = "[a](https://b.example/c?d=1)"


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


def bullet(level, text):
    return f'<li class="bullet" data-level="{level}">{text}</li>'


def table(*rows):
    return f'<div class="wide"><table>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a\nb\n\nc", "<p>a\nb</p>\n<p>c</p>"),
        ("text\n## **a**", "<p>text</p>\n<h4><strong>a</strong></h4>"),
        ("```py\n# a\n\n<b>\n```\nc", "<pre># a\n\n&lt;b&gt;</pre>\n<p>c</p>"),
        (LINK, '<p><a href="https://b.example/c?d=1" rel="noreferrer">a</a></p>'),
        ("[a](javascript:b) [c](/d)", "<p>[a](javascript:b) [c](/d)</p>"),
        ('[a](https://b"onclick=c)', '<p><a href="https://b&quot;onclick=c" rel="noreferrer">a</a></p>'),
        ("- a\n  - b\n          - c", f"<ol>{bullet(0, 'a')}{bullet(1, 'b')}{bullet(3, 'c')}</ol>"),
        ("7. a\n8) b", '<ol><li value="7" data-level="0">a</li><li value="8" data-level="0">b</li></ol>'),
        (
            "So:\n| a | b |\n|:--|--:|\n| c \\| d | **e** |\nf",
            f"<p>So:</p>\n{table('<th>a</th><th>b</th>', '<td>c | d</td><td><strong>e</strong></td>')}\n<p>f</p>",
        ),
    ],
)
def test_markdown_becomes_html(text, html):
    assert html_of(text) == html


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
