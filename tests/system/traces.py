"""Where an Airflow keeps what it has been told: its logs, its triggers, and every table of its database."""

from __future__ import annotations

from typing import Any

from cryptography.fernet import Fernet

from dev.postgres import PostgresServer
from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN

REFUSED_TOKEN = "not-the-token-9876"
_SECRETS = (TOKEN.encode(), REFUSED_TOKEN.encode())
TRIGGERS = "what triggers were told"


def traces(airflow: AirflowStack, database: PostgresServer) -> dict[str, bytes]:
    """Return what each log and each table holds, by its name, and what the triggers of crews were told."""
    found = {str(path): path.read_bytes() for path in airflow.home.rglob("*") if path.is_file()}
    for (table,) in database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        rows = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608
        found[table] = repr([[_whole(value) for value in row] for row in rows]).encode()
    triggers = database.execute("SELECT kwargs FROM trigger WHERE classpath ~ 'CrewExecutionTrigger$'")
    fernet = Fernet(airflow._environment["AIRFLOW__CORE__FERNET_KEY"])
    # Airflow 3.3 keeps them as they are.
    told = [kept.encode() if kept.startswith("{") else fernet.decrypt(kept) for (kept,) in triggers]
    return found | {TRIGGERS: b"\n".join(told)}


def _whole(value: Any) -> Any:
    """Return the bytes themselves, of which PostgreSQL's driver only gives a view."""
    return bytes(value) if isinstance(value, memoryview) else value


def has_secret(told: bytes) -> bool:
    return any(secret in told for secret in _SECRETS)


def with_secrets(airflow: AirflowStack, database: PostgresServer) -> list[str]:
    """Return the names of the places that a token has got to."""
    return [place for place, told in traces(airflow, database).items() if has_secret(told)]
