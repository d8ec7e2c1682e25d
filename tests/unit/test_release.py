"""What makes a release, and what keeps it from being one."""

from __future__ import annotations

import pytest

from dev.release import NotReady, changelog_entry, require_address

TOP = "# Changelog\n\nAll notable changes.\n\n"


def test_the_entry_of_the_version_is_what_is_told():
    changelog = f"{TOP}## 1.1.0 (2026-03-01)\n\n- New.\n- Newer.\n\n## 1.0.0 (2026-02-01)\n\n- Old.\n"

    assert changelog_entry(changelog, "1.1.0") == "- New.\n- Newer."


@pytest.mark.parametrize(
    "entries",
    [
        "",
        "## 1.1.0 (not released)\n\n- New.\n",
        "## 1.1.0\n\n- New.\n",
        "## 1.1.0 (2026-03-99)\n\n- New.\n",
        "## 1.1.0 (2026-03-01)\n\n## 1.0.0 (2026-02-01)\n\n- Old.\n",
        "## 1.0.0 (2026-02-01)\n\n- Old.\n",
        "## 1.1.0 (not released)\n\n- New.\n\n## 1.0.0 (2026-02-01)\n\n- Old.\n",
        "## 1.2.0 (2026-04-01)\n\n- Newer.\n\n## 1.1.0 (2026-03-01)\n\n- New.\n",
    ],
    ids=[
        "empty",
        "not released",
        "no date",
        "no such date",
        "nothing new",
        "an older one",
        "not released after an older one",
        "a newer one",
    ],
)
def test_a_version_without_a_dated_entry_at_the_top_is_no_release(entries):
    with pytest.raises(NotReady, match=r"## 1\.1\.0 \(YYYY-MM-DD\)"):
        changelog_entry(TOP + entries, "1.1.0")


ADDRESS = {"urls": {"Source": "https://crew.example"}}


@pytest.mark.parametrize("project", [{}, {"urls": {}}], ids=["none", "empty"])
def test_a_release_says_where_the_project_is(project):
    with pytest.raises(NotReady, match=r"\[project\.urls\]"):
        require_address(project, "")


def test_a_release_links_to_nothing_that_an_index_does_not_have():
    with pytest.raises(NotReady, match=r"docs/scale\.md, docs/demo\.svg"):
        require_address(ADDRESS, "[Scale](docs/scale.md), ![a picture](docs/demo.svg)\n")


def test_a_release_with_its_address_everywhere_is_none_to_refuse():
    require_address(ADDRESS, "[Scale](https://crew.example/docs/scale.md), [below](#below)\n")
