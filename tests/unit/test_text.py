"""What others say is shown in a log as what it is, and does nothing there."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.client.text import one_line, quoted

# What Airflow's log page folds by, anywhere in a line.
FOLDS = re.compile(r"::group::|::endgroup::")
FOLDING = st.text(st.sampled_from(":\n endgroup\x00\u200d")) | st.lists(
    st.sampled_from(["::", ":", "group", "end", "\n", " ", "\0", "\u200d", "\u00ad"])
).map("".join)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::endgroup::", ": :endgroup::"),
        ("a ::group::b", "a : :group::b"),
        ("::::group::group::", "::: :group: :group::"),
        ("the group of 20", "the group of 20"),
    ],
)
def test_line_folds_nothing_in_the_log_page(text: str, shown: str) -> None:
    assert one_line(text, 100) == shown
    assert quoted(text, 100) == (f"| {shown}", False)


@given(FOLDING | st.text(), st.integers(1, 60))
def test_any_text_folds_nothing_and_has_no_control_codes(text: str, most: int) -> None:
    shown, is_cut = quoted(text, most)

    for line in shown.split("\n") if shown else []:
        assert line.startswith("|")
        assert not FOLDS.search(line)
        assert not {unicodedata.category(c) for c in line} & {"Cc", "Cs", "Zl", "Zp"}
        assert {c for c in line if unicodedata.category(c) == "Cf"} <= {"\u200c", "\u200d"}
    assert not FOLDS.search(one_line(text, most))
    assert is_cut == (len(text.encode(errors="replace")) > most)


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("one\n\n  two\ttab\n", 100, "| one\n|\n|   two   tab"),
        ("a\r\nb\rc\x0bd\u2028e\x85f", 100, "| a\n| b\n| c\n| d\n| e\n| f"),
        ("\x1b[31mred\x07\x00 \u202eback", 100, "| \ufffd[31mred\ufffd\ufffd \ufffdback"),
        ("caf\u00e9\u00a0: \U0001f469\u200d\U0001f4bb", 100, "| caf\u00e9 : \U0001f469\u200d\U0001f4bb"),
        ("abcdef", 4, "| abcd\n| …"),
        ("\u00e9\u00e9\u00e9", 3, "| \u00e9\n| …"),  # of four bytes and a half, no half a letter
        ("", 10, ""),
    ],
)
def test_quoted_text_keeps_its_lines(text: str, most: int, shown: str) -> None:
    assert quoted(text, most)[0] == shown
