"""Users of another API server: an admin, a reader who may change nothing, and a viewer who reads no XComs."""

from __future__ import annotations

import json
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

PASSWORDS = {name: f"of-the-{name}" for name in ("admin", "reader", "viewer")}


class Users(SimpleAuthManager):
    """Airflow's own, except for the viewer."""

    def is_authorized_dag(
        self, *, access_entity: Any = None, details: Any = None, user: Any, **about: Any
    ) -> bool:
        if access_entity is DagAccessEntity.XCOM and user.username == "viewer":
            return False
        return super().is_authorized_dag(access_entity=access_entity, details=details, user=user, **about)


def settings(passwords_file: Any) -> dict[str, str]:
    """Return what an API server needs in its environment to know these users."""
    passwords_file.write_text(json.dumps(PASSWORDS))
    return {
        "AIRFLOW__CORE__AUTH_MANAGER": f"{__name__}.{Users.__name__}",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,reader:viewer,viewer:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords_file),
    }
