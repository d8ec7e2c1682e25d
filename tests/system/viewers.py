"""Users for an API server of its own: an admin, and a viewer who may see tasks, but not what they leave."""

from __future__ import annotations

import json
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

PASSWORDS = {"admin": "of-the-admin", "viewer": "of-the-viewer"}


class ViewersSeeNoXComs(SimpleAuthManager):
    """Airflow's own, but for the XComs."""

    def is_authorized_dag(self, *, access_entity: Any = None, user: Any, **about: Any) -> bool:
        if access_entity is DagAccessEntity.XCOM and user.username != "admin":
            return False
        return super().is_authorized_dag(access_entity=access_entity, user=user, **about)


def settings(passwords_file: Any) -> dict[str, str]:
    """Return what an API server needs in its environment to know these users."""
    passwords_file.write_text(json.dumps(PASSWORDS))
    return {
        "AIRFLOW__CORE__AUTH_MANAGER": f"{__name__}.{ViewersSeeNoXComs.__name__}",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords_file),
    }
