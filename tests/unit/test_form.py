"""
The connection form of Airflow 3.1.

The libraries that draw it come with that version only, so they are stood in for here by what they record.
"""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from airflow_provider_crew.get_provider_info import CONNECTION_FIELDS
from airflow_provider_crew.hooks.crew import CrewHook

STAND_INS = {
    "wtforms": ["BooleanField", "PasswordField", "StringField"],
    "flask_appbuilder": [],
    "flask_appbuilder.fieldwidgets": ["BS3PasswordFieldWidget", "BS3TextFieldWidget"],
    "flask_babel": ["lazy_gettext"],
}
NOT_STRINGS = {
    **dict.fromkeys(("user_bearer_token", "proxy"), "PasswordField"),
    **dict.fromkeys(("cancel_on_kill", "cancel_on_timeout", "allow_http"), "BooleanField"),
}


def recorded(kind: str, *args: Any, **options: Any) -> Any:
    return args[0] if kind == "lazy_gettext" else (kind, options)


@pytest.fixture
def form(monkeypatch) -> dict[str, Any]:
    for module, names in STAND_INS.items():
        stand_in = ModuleType(module)
        vars(stand_in).update({name: partial(recorded, name) for name in names})
        monkeypatch.setitem(sys.modules, module, stand_in)
    return CrewHook.get_connection_form_widgets()


def test_form_has_every_field_with_its_type_and_label(form):
    shown = {name: (kind, options["label"], options["description"]) for name, (kind, options) in form.items()}

    assert shown == {
        name: (NOT_STRINGS.get(name, "StringField"), field["label"], field["description"])
        for name, field in CONNECTION_FIELDS.items()
    }
