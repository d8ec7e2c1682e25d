"""OpenAPI description of the server for a scenario, with its inputs and only the paths it serves."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter

from airflow_provider_crew.local.dialects.dialect import Bodies
from airflow_provider_crew.local.dialects.kickoff import KickoffRequest
from airflow_provider_crew.local.scenario import Scenario

_SCHEMAS = "#/components/schemas/{model}"
_STATUS_PATHS = {"status_first": "/status/{kickoff_id}", "id_first": "/{kickoff_id}/status"}
_KICKOFF_ID = {"name": "kickoff_id", "in": "path", "required": True, "schema": {"type": "string"}}

# OpenAPI documents have no Python type of their own.
Described = dict[str, Any]


def described(bodies: Bodies, scenario: Scenario) -> Described:
    """Describe the requests and answers of the server."""
    models = {(operation, status): model for operation, told in bodies.items() for status, model in told.items()}
    schemas, shared = TypeAdapter.json_schemas(
        [(key, "serialization", TypeAdapter(model)) for key, model in models.items()], ref_template=_SCHEMAS
    )
    answers: dict[str, Described] = {operation: {} for operation in bodies}
    for (operation, status), model in models.items():
        kind = "text/plain" if model is str else "application/json"
        content = {kind: {"schema": schemas[(operation, status), "serialization"]}}
        answers[operation][str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    taken = _taken(scenario)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Local crew service", "version": "1.0.0"},
        "paths": _paths(scenario, answers, taken),
        "components": {
            "schemas": {**shared["$defs"], **taken.pop("$defs")},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _taken(scenario: Scenario) -> Described:
    """Describe the body of a kickoff."""
    schema = KickoffRequest.model_json_schema(ref_template=_SCHEMAS)
    schema["properties"]["inputs"] |= {
        "properties": {known.name: {"description": known.description} for known in scenario.inputs},
        "required": scenario.missing(scenario.received({})),
    }
    return schema


def _paths(scenario: Scenario, answers: Mapping[str, Described], taken: Described) -> Described:
    def operation(name: str, operation_id: str, summary: str, **more: Any) -> Described:
        told = {"operationId": operation_id, "summary": summary, "responses": answers[name]}
        return {**told, "security": [{"bearer": []}], **more}

    body = {"required": True, "content": {"application/json": {"schema": taken}}}
    paths: Described = {
        "/inputs": {"get": operation("inputs", "getInputs", "List the inputs the crew asks for")},
        "/kickoff": {"post": operation("kickoff", "kickoff", "Start an execution of the crew", requestBody=body)},
    }
    for variant, path in _STATUS_PATHS.items():
        if scenario.status_paths in ("both", variant):
            told = operation(
                "status", f"getStatus_{variant}", "Return the status of an execution", parameters=[_KICKOFF_ID]
            )
            paths[path] = {"get": told}
    stop = operation("stop", "stop", "Stop an execution", parameters=[_KICKOFF_ID])
    return {**paths, "/stop/{kickoff_id}": {"post": stop}}
