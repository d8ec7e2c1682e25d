"""What others say is shown in a log as what it is, and does nothing there."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.client.text import one_line, quoted

# What Airflow's log page folds by, anywhere in a line.
FOLDS = re.compile(r"::group::|::endgroup::")
FOLDING = st.text(st.sampled_from(":\n endgroup\x00\u200d")) | st.lists(
    st.sampled_from(["::", ":", "group", "end", "\n", " ", "\0", "\u200d", "\u00ad"])
).map("".join)


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
