"""HTML page of one or more executions."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from airflow_provider_crew.local.executions import Execution, Standing
from airflow_provider_crew.local.wire.markdown import html_of, visible

# Paths of the pages. The API does not include them.
LIST = "/local/"
SINGLE = "/executions/{kickoff_id}"
STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page_of(executions: Sequence[Execution], now: float, airflow_url: str | None, *, single: bool) -> str:
    """
    Return the page. Executions that wait for human input come first.

    It reloads itself while an execution is running, unless it has a form to fill in.
    """
    views = [_view(execution, now, airflow_url) for execution in executions]
    views.sort(key=lambda view: not view["at"].waiting)
    reloads = any(not view["at"].over for view in views) and not any(view["at"].waiting for view in views)
    return visible(_TEMPLATE.render(executions=views, reloads=reloads, single=single, list=LIST, style=STYLE))


def listed(executions: Sequence[Execution], now: float) -> list[Any]:
    """Return the executions as JSON data, the oldest first."""
    shown = ("kickoff_id", "started_at", "inputs", "meta")
    return [
        {name: getattr(each, name) for name in shown} | {"state": _state(each.standing(now))[0].lower()}
        for each in executions
    ]


def _view(execution: Execution, now: float, airflow_url: str | None) -> dict[str, Any]:
    at = execution.standing(now)
    state, tone = _state(at)
    return {
        "kickoff_id": execution.kickoff_id,
        "path": SINGLE.format(kickoff_id=_segment(execution.kickoff_id)),
        "at": at,
        "state": state,
        "tone": tone,
        "age": now - execution.started_at,
        "inputs": ", ".join(f"{name}: {value}" for name, value in execution.inputs.items()),
        "request": {"inputs": execution.inputs, "meta": execution.meta},
        "task": _airflow_task(execution.meta, airflow_url),
    }


def _state(at: Standing) -> tuple[str, str]:
    """Return the state of an execution, and the class of its colors."""
    if at.waiting:
        return "Waiting for human input", "waiting"
    if not at.over:
        return ("Queued", "idle") if at.queued else ("Running", "active")
    if at.error is None:
        return "Completed", "good"
    return "Revoked" if at.revoked else "Failed", "bad"


def _airflow_task(meta: Any, airflow_url: str | None) -> dict[str, str] | None:
    """Return the name and the URL of the Airflow task that started an execution, if its meta names one."""
    match meta:
        case {"airflow": {"dag_id": str(dag), "run_id": str(run), "task_id": str(task), "map_index": int(index)}}:
            mapped, shown = (f"/mapped/{index}", f"[{index}]") if index >= 0 else ("", "")
            path = f"/dags/{_segment(dag)}/runs/{_segment(run)}/tasks/{_segment(task)}{mapped}"
            return {"name": f"{dag} / {task}{shown}", "url": f"{airflow_url}{path}" if airflow_url else ""}
    return None


def _segment(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


_ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined)
_ENVIRONMENT.filters |= {"duration": _duration, "indented_json": _json, "markdown": html_of}
_TEMPLATE = _ENVIRONMENT.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
