"""Executions in a file, stored for the next service."""

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from airflow_provider_crew.local.executions import DoneTask, Standing
from airflow_provider_crew.local.projects.execution import ProjectExecution
from airflow_provider_crew.local.scenario import Scenario
from airflow_provider_crew.local.unusable import Unusable

_TABLE = "CREATE TABLE IF NOT EXISTS executions (kickoff_id TEXT PRIMARY KEY, kickoff TEXT, standing TEXT)"
_SAVE = (
    "INSERT INTO executions VALUES (?, ?, ?) ON CONFLICT (kickoff_id) DO UPDATE SET standing = excluded.standing"
)
# The fields needed to report an execution. Webhook URLs may hold secrets and are not called again.
_KEPT = ("kickoff_id", "inputs", "meta", "restored_from", "started_at")
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path, log: Callable[[str], None]) -> None:
    """Create a folder that only its owner can access. If it exists, restrict it and its files to the owner."""
    try:
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        # Another user may have created the folder, or a link to one.
        if {folder.lstat().st_uid, folder.stat().st_uid} != {os.geteuid()}:
            raise Unusable(f"{folder} belongs to another user. Remove it, or name another file with --keep.")
        # Restrict the folder first. After that, other users can't open the files in it.
        _take_away(folder.resolve(), log)
        for path in folder.resolve().rglob("*"):
            _take_away(path)
    except OSError as error:
        raise Unusable(f"{folder} cannot be made private: {error.strerror}.") from None


def _take_away(path: Path, log: Callable[[str], None] = lambda _: None) -> None:
    """Restrict a file or folder to its owner. A link has no permissions of its own."""
    mode = path.lstat().st_mode
    if mode & _OF_OTHERS and not stat.S_ISLNK(mode):
        path.chmod(stat.S_IMODE(mode) & ~_OF_OTHERS)
        log(f"Other users could open {path}. From now on only you can.")


class Kept:
    """The file. Only one service may use it, because a second would report its executions as interrupted."""

    def __init__(self, file: Path, log: Callable[[str], None]) -> None:
        try:
            # Other users on this machine must not read the output of crews.
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            _take_away(file.resolve(), log)
            self._database = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute(_TABLE)
            self._database.execute("BEGIN EXCLUSIVE")
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            self._database.close()
            raise Unusable(f"{file} cannot keep executions: {error}.") from None
        except OSError as error:
            raise Unusable(f"{file} cannot keep executions: {error.strerror}.") from None

    def save(self, execution: ProjectExecution) -> None:
        """Save the status of an execution. It is on disk when this returns."""
        kickoff = {name: getattr(execution, name) for name in _KEPT}
        row = (execution.kickoff_id, json.dumps(kickoff), json.dumps(asdict(execution.at)))
        self._database.execute(_SAVE, row)

    def load(self, scenario: Scenario) -> list[ProjectExecution]:
        """Return all executions, in the order of their kickoffs."""
        rows = self._database.execute("SELECT kickoff, standing FROM executions ORDER BY rowid")
        return [_execution(scenario, json.loads(kickoff), json.loads(at)) for kickoff, at in rows]

    def close(self) -> None:
        """Release the file for another service."""
        self._database.close()


def _execution(scenario: Scenario, kickoff: dict[str, object], at: dict[str, object]) -> ProjectExecution:
    tasks = tuple(DoneTask(**task) for task in at.pop("tasks"))  # type: ignore[attr-defined]
    standing = Standing(**at, tasks=tasks)  # type: ignore[arg-type]
    return ProjectExecution(**kickoff, webhooks={}, events=None, scenario=scenario, at=standing)  # type: ignore[arg-type]
