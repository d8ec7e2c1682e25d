"""What makes a release, and what keeps it from being one."""

from __future__ import annotations

import pytest

from dev import golden
from dev.release import NotReady, changelog_entry, require_addresses, require_golden_set
from hatch_build import ReadmeHook

TOP = "# Changelog\n\nAll notable changes.\n\n"


def test_changelog_entry_of_the_version():
    changelog = f"{TOP}## 1.1.0 (2026-03-01)\n\n- New.\n- Newer.\n\n## 1.0.0 (2026-02-01)\n\n- Old.\n"

    assert changelog_entry(changelog, "1.1.0") == "- New.\n- Newer."


@pytest.mark.parametrize(
    "entries",
    [
        "",
        "## 1.1.0 (not released)\n\n- New.\n",
        "## 1.1.0 (2026-03-99)\n\n- New.\n",
        "## 1.1.0 (2026-03-01)\n\n## 1.0.0 (2026-02-01)\n\n- Old.\n",
        "## 1.2.0 (2026-04-01)\n\n- Newer.\n\n## 1.1.0 (2026-03-01)\n\n- New.\n",
    ],
    ids=["empty", "not released", "no such date", "nothing new", "a newer one"],
)
def test_release_needs_a_dated_entry_at_the_top(entries):
    with pytest.raises(NotReady, match=r"## 1\.1\.0 \(YYYY-MM-DD\)"):
        changelog_entry(TOP + entries, "1.1.0")


ADDRESSES = dict.fromkeys(("Homepage", "Documentation", "Source", "Issues"), "https://crew.example")


def test_release_needs_its_addresses():
    require_addresses({"urls": ADDRESSES})
    with pytest.raises(NotReady, match=r"\[project\.urls\].* for Source\.$"):
        require_addresses({"urls": ADDRESSES | {"Source": ""}})


def test_release_needs_its_golden_set(tmp_path):
    require_golden_set(tmp_path)
    with pytest.raises(NotReady, match="make golden"):
        require_golden_set(tmp_path / "1.1.0")


def test_golden_set_is_not_overwritten(tmp_path):
    assert golden.main(tmp_path) == 1
    assert [*tmp_path.iterdir()] == []


README = (
    "[Scale](docs/scaling.md#a), ![a\npicture](docs/demo.svg), [below](#below), [far](https://far.example/x.md)\n"
)
LINKED = (
    "[Scale](https://crew.example/blob/v1.1.0/docs/scaling.md#a), "
    "![a\npicture](https://crew.example/raw/v1.1.0/docs/demo.svg), [below](#below), [far](https://far.example/x.md)\n"
)


@pytest.mark.parametrize(
    ("urls", "shown"), [({"urls": ADDRESSES}, LINKED), ({}, README)], ids=["known", "not known yet"]
)
def test_readme_of_the_package_index_has_absolute_links(tmp_path, urls, shown):
    (tmp_path / "README.md").write_text(README)
    metadata = {"version": "1.1.0", **urls}

    ReadmeHook(str(tmp_path), {}).update(metadata)

    assert metadata["readme"] == {"content-type": "text/markdown", "text": shown}
