"""What Airflow is told about this package, without importing any more of it."""

from __future__ import annotations

from typing import Any

from airflow_provider_crew import __version__

_TEXT = ["string", "null"]

# One description of the connection's own fields: Airflow 3.2 and newer read it from here, and the hook builds
# the form of older versions from it.
CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "user_bearer_token": {
        "label": "User bearer token",
        "description": "For individual access with limited permissions. From the Status tab of the crew.",
        "schema": {"type": _TEXT, "format": "password"},
    },
    "token_type": {
        "label": "Token to use",
        "description": "organization or user. Empty: the organization's if there is one, else the user's.",
        "schema": {"type": _TEXT, "enum": ["organization", "user"]},
    },
    "dashboard_url": {
        "label": "Dashboard address",
        "description": "Page of this crew in the dashboard; tasks link to it.",
        "schema": {"type": _TEXT},
    },
    "request_timeout": {
        "label": "Request time-out (s)",
        "description": "For one whole exchange, from connecting to the last byte. Empty: 60.",
        "schema": {"type": ["integer", "null"], "minimum": 1},
    },
    "verify": {
        "label": "Verify TLS certificates",
        "description": "true, false, or the path of a file of CA certificates. Empty: true.",
        "schema": {"type": _TEXT},
    },
    "proxy": {
        "label": "Proxy",
        "description": "http://proxy.example:3128. Empty: what the environment says (https_proxy, no_proxy).",
        "schema": {"type": _TEXT, "format": "password"},
    },
    "status_path": {
        "label": "Status path",
        "description": "auto, status_first (/status/ID) or id_first (/ID/status). Empty: auto, which finds out.",
        "schema": {"type": _TEXT, "enum": ["auto", "status_first", "id_first"]},
    },
    "allow_http": {
        "label": "Allow plain http",
        "description": "Send the token unencrypted to a host that is not this machine.",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
}

FORM_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["login", "schema", "extra"],
    "relabeling": {"host": "Crew address", "password": "Organization bearer token"},
    "placeholders": {
        "host": "https://my-crew.crewai.com",
        "password": "from the Status tab of the crew",
        "port": "443",
    },
}


def get_provider_info() -> dict[str, Any]:
    """Return the metadata that Airflow looks for behind the entry point apache_airflow_provider."""
    return {
        "package-name": "airflow-provider-crew",
        "name": "Crew",
        "description": "Run deployed AI crews: teams of agents behind a REST API.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": "Crew",
                "external-doc-url": "https://docs.crewai.com/",
                "tags": ["service"],
            }
        ],
        "operators": [_modules("airflow_provider_crew.operators.crew")],
        "sensors": [_modules("airflow_provider_crew.sensors.crew")],
        "triggers": [_modules("airflow_provider_crew.triggers.crew")],
        "task-decorators": [
            {"class-name": "airflow_provider_crew.decorators.crew.crew_task", "name": "crew"},
        ],
        "extra-links": ["airflow_provider_crew.links.crew.CrewDashboardLink"],
        "hooks": [_modules("airflow_provider_crew.hooks.crew")],
        "connection-types": [
            {
                "connection-type": "crew",
                "hook-class-name": "airflow_provider_crew.hooks.crew.CrewHook",
                "hook-name": "Crew",
                "conn-fields": CONNECTION_FIELDS,
                "ui-field-behaviour": FORM_BEHAVIOUR,
            }
        ],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": "Crew", "python-modules": list(names)}
