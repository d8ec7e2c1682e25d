"""
The tab "Crew" on the page of a task instance, from Airflow 3.1 on, and the listener for delivered results.

Every process of Airflow loads this module. What the tab needs is made when the API server asks for it.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowPlugin, conf

from airflow_provider_crew.compat import HAS_TABS, IS_AIRFLOW_2
from airflow_provider_crew.plugins import delivery

if TYPE_CHECKING:
    from fastapi import FastAPI

_FILES = Path(__file__).with_name("tab")
_PREFIX = "/crew-tab"
# The label of the tab, and the name under which the bundle leaves its component for the page.
_LABEL = "Crew"


class CrewPlugin(AirflowPlugin):
    """Shows what a crew does, and what it has put out. On Airflow 2.11 and 3.0 there is nothing to put it in."""

    name = "crew"
    listeners = [delivery] if IS_AIRFLOW_2 else []

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # made for whoever asks, not at import
        """Serve the files of the tab."""
        return [{"name": "Crew tab", "app": _file_server(), "url_prefix": _PREFIX}] if HAS_TABS else []

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # it reads the configuration
        """
        Describe the tab.

        The address is a whole path: Airflow 3.1 and 3.2 resolve a relative one against their own bundle, later
        versions against the page.
        """
        if not HAS_TABS:
            return []
        root = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + _PREFIX
        return [
            {
                "name": _LABEL,
                "destination": "task_instance",
                "url_route": "crew",
                "bundle_url": f"{root}/crew.js",
                "icon": f"{root}/crew.svg",
                "icon_dark_mode": f"{root}/crew-dark.svg",
                # From 3.4 on Airflow takes note of this. Before, the tab tells whether the task is a crew's.
                "applies_to": {"task.template_fields": ["crew_conn_id"]},
            }
        ]


def _file_server() -> FastAPI:
    """Return an application that serves these files, to anybody: they hold no data."""
    from fastapi import FastAPI
    from fastapi.staticfiles import StaticFiles

    class Files(StaticFiles):
        def file_response(self, *args: Any, **kwargs: Any) -> Any:
            # Else a browser would keep them for a tenth of their age, beyond an update of this package.
            answer = super().file_response(*args, **kwargs)
            answer.headers["Cache-Control"] = "no-cache"
            answer.headers["X-Content-Type-Options"] = "nosniff"
            return answer

    app = FastAPI(title="Crew tab", openapi_url=None)
    app.mount("/", Files(directory=_FILES))
    return app
