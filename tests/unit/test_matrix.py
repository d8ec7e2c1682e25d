"""What the matrix runs, and when it says that it has passed."""

from __future__ import annotations

import pytest

from dev import matrix
from dev.matrix import main


@pytest.fixture
def ran(monkeypatch):
    """Return the cells that were run, each of which passes."""
    cells = []

    def passed(cell):
        cells.append(cell)
        return "1 passed, 1 s"

    monkeypatch.setattr(matrix, "_outcome", passed)
    return cells


def test_without_arguments_everything_is_run(ran):
    assert main([]) == 0

    assert {cell.suite for cell in ran} == {"tests", "system"}
    assert {cell.airflow for cell in ran} == {"2.11", "3.0", "3.1", "3.2", "3.3", "3.4"}
    assert {cell.python for cell in ran} == {"3.11", "3.12", "3.13"}


def test_what_is_asked_for_is_run(ran, capsys):
    assert main(["smoke", "--airflow", "3.0", "3.3", "--python", "3.12"]) == 0

    assert [(cell.suite, cell.airflow, cell.python) for cell in ran] == [
        ("smoke", "3.0", "3.12"),
        ("smoke", "3.3", "3.12"),
    ]
    assert "| 3.0 | 3.12 | smoke | 1 passed, 1 s |" in capsys.readouterr().out


def test_an_unknown_suite_is_named(ran, capsys):
    with pytest.raises(SystemExit):
        main(["smok"])

    assert "there is no suite smok, but smoke, tests, system" in capsys.readouterr().err
    assert not ran


def test_nothing_to_run_is_no_success(ran):
    assert main(["system", "--python", "3.13"]) == 1
    assert not ran


@pytest.mark.parametrize("outcome", ["no such Python here", "FAILED: 1 failed, 7 passed, 3 s"])
def test_what_has_not_passed_is_no_success(monkeypatch, outcome):
    monkeypatch.setattr(matrix, "_outcome", lambda cell: outcome if cell.airflow == "3.0" else "1 passed, 1 s")

    assert main(["smoke", "--airflow", "3.0"]) == 1
    assert main(["smoke", "--airflow", "3.0", "3.3"]) == int(outcome.startswith("FAILED"))


def test_the_table_is_told_also_when_it_is_stopped(monkeypatch, capsys):
    def stopped(cell):
        if cell.airflow == "3.0":
            raise KeyboardInterrupt
        return "FAILED: 1 failed, 3 s"

    monkeypatch.setattr(matrix, "_outcome", stopped)

    with pytest.raises(KeyboardInterrupt):
        main(["smoke", "--python", "3.11"])

    assert "| 2.11 | 3.11 | smoke | FAILED: 1 failed, 3 s |" in capsys.readouterr().out
