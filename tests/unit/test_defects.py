"""Each known defect can still be put back. `make defects` runs the tests that notice it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

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
