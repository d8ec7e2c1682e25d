"""What makes a release and keeps it from being one, and defects that can still be put back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dev import golden
from dev.release import NotReady, require_golden_set


def test_release_needs_its_golden_set(tmp_path):
    require_golden_set(tmp_path)
    with pytest.raises(NotReady, match="make golden"):
        require_golden_set(tmp_path / "1.1.0")


def test_golden_set_is_not_overwritten(tmp_path):
    assert golden.main(tmp_path) == 1
    assert [*tmp_path.iterdir()] == []


ROOT = Path(__file__).parents[2]
DEFECTS = tomllib.loads((ROOT / "dev" / "defects.toml").read_text())["defect"]


@pytest.mark.parametrize("defect", DEFECTS, ids=[each["name"] for each in DEFECTS])
def test_code_and_tests_of_a_defect_exist(defect):
    for name, old, _ in defect["changes"]:
        assert (ROOT / "airflow_provider_crew" / name).read_text().count(old) == 1
    for test in defect["tests"]:
        path, *classes, function = test.partition("[")[0].split("::")
        text = (ROOT / "tests" / path).read_text()
        assert all(f"class {name}" in text for name in classes)
        assert f"def {function}(" in text
