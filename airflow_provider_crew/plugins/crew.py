"""
Crew tab of a task instance, the Crews page, and the receiver of human input webhooks.

Every Airflow process loads this module, so the applications are created only when the API server asks for them.
"""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowPlugin, conf

from airflow_provider_crew.get_provider_info import is_on

if TYPE_CHECKING:
    from fastapi import FastAPI

_PREFIX = "/crew-tab"

log = logging.getLogger(__name__)


class CrewPlugin(AirflowPlugin):
    """Show the progress and the output of a crew."""

    name = "crew"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # created on first use, not at import
        """Return the applications for the tab's files and for webhooks, as far as they are turned on."""
        apps: list[dict[str, Any]] = []
        if is_on("tab", log):
            apps.append({"name": "Crew tab", "app": _file_server(), "url_prefix": _PREFIX})
        if conf.get("crew", "events_url", fallback=""):
            from airflow_provider_crew.answers.receiver import Receiver, app

            receiver = Receiver()
            apps.append({"name": "Crew events", "app": app(receiver), "url_prefix": "/crew"})
            if is_on("settle_kickoffs", log):
                from airflow_provider_crew.settle.receiver import add_route

                add_route(apps[-1]["app"], receiver)
        return apps

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # it reads the configuration
        """
        Return the definitions of the tab and of the page, unless they are turned off.

        The URLs are absolute paths, because Airflow 3.1 and 3.2 resolve a relative one against their own bundle,
        and later versions against the page.
        """
        if not is_on("tab", log):
            return []
        root = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + _PREFIX
        files = {
            "bundle_url": f"{root}/crew.js",
            "icon": f"{root}/crew.svg",
            "icon_dark_mode": f"{root}/crew-dark.svg",
        }
        # Each name is a label, under which the bundle registers its component.
        tab = {"name": "Crew", "destination": "task_instance", "url_route": "crew"}
        page = {"name": "Crews", "destination": "nav", "url_route": "crews"}
        # Only Airflow 3.4 and later read this. In earlier versions, the tab itself checks the task.
        scope = {"applies_to": {"task.template_fields": ["crew_conn_id"]}}
        return [tab | files | scope, page | files]


def _file_server() -> FastAPI:
    """Return an application that serves the tab's files without authentication, since they contain no data."""
    from fastapi import FastAPI
    from fastapi.staticfiles import StaticFiles

    class Files(StaticFiles):
        def file_response(self, *args: Any, **kwargs: Any) -> Any:
            # Without this header, browsers cache the files for a tenth of their age, even after an upgrade.
            answer = super().file_response(*args, **kwargs)
            answer.headers["Cache-Control"] = "no-cache"
            answer.headers["X-Content-Type-Options"] = "nosniff"
            return answer

    app = FastAPI(title="Crew tab", openapi_url=None)
    app.mount("/", Files(directory=Path(__file__).with_name("tab")))
    return app
