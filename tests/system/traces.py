"""Where an Airflow keeps what it has been told: its logs, its triggers, and every table of its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.fernet import Fernet
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import Connection

from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN

REFUSED_TOKEN = "not-the-token-9876"
_SECRETS = (TOKEN.encode(), REFUSED_TOKEN.encode())
TRIGGERS = "what triggers were told"


def traces(airflow: AirflowStack) -> dict[str, bytes]:
    """Return what each log and each table holds, by its name, and what the triggers of crews were told."""
    logs = [path for path in airflow.home.rglob("*") if path.is_file() and "airflow.db" not in path.name]
    found = {str(path): path.read_bytes() for path in logs}
    with _database(airflow) as database:
        for table in inspect(database).get_table_names():
            found[table] = repr(_rows(database, f'select * from "{table}"')).encode()  # noqa: S608
        triggers = _rows(database, "select kwargs from trigger where classpath like '%CrewExecutionTrigger'")
    fernet = Fernet(airflow._environment["AIRFLOW__CORE__FERNET_KEY"])
    # Airflow 3.3 keeps them as they are.
    told = [kept.encode() if kept.startswith("{") else fernet.decrypt(kept) for (kept,) in triggers]
    return found | {TRIGGERS: b"\n".join(told)}


def has_secret(told: bytes) -> bool:
    return any(secret in told for secret in _SECRETS)


def with_secrets(airflow: AirflowStack) -> list[str]:
    """Return the names of the places that a token has got to."""
    return [place for place, told in traces(airflow).items() if has_secret(told)]


@contextmanager
def _database(airflow: AirflowStack) -> Iterator[Connection]:
    """Connect to whichever database this Airflow has."""
    engine = create_engine(airflow._environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _rows(database: Connection, query: str) -> list[tuple[Any, ...]]:
    """Return them with the bytes themselves, of which PostgreSQL's driver only gives a view."""
    found = database.execute(text(query))
    return [tuple(bytes(each) if isinstance(each, memoryview) else each for each in row) for row in found]
