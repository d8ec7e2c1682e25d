"""
The connection form of Airflow 3.1.

The libraries that draw it come with that version only, so they are stood in for here by what they record.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from airflow_provider_crew.get_provider_info import CONNECTION_FIELDS
from airflow_provider_crew.hooks.crew import CrewHook


class Recorded:
    """Takes what a field or a widget is made with."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.args = args
        self.options = options


def recording(name: str) -> type[Recorded]:
    return type(name, (Recorded,), {})


STAND_INS = {
    "wtforms": ["BooleanField", "PasswordField", "StringField"],
    "flask_appbuilder": [],
    "flask_appbuilder.fieldwidgets": ["BS3PasswordFieldWidget", "BS3TextFieldWidget"],
}


@pytest.fixture
def form(monkeypatch) -> dict[str, Any]:
    for module, names in STAND_INS.items():
        stand_in = ModuleType(module)
        vars(stand_in).update({name: recording(name) for name in names})
        monkeypatch.setitem(sys.modules, module, stand_in)
    babel = ModuleType("flask_babel")
    vars(babel)["lazy_gettext"] = lambda text: text
    monkeypatch.setitem(sys.modules, "flask_babel", babel)
    return CrewHook.get_connection_form_widgets()


def test_form_has_every_field_with_its_label(form):
    shown = {name: (field.options["label"], field.options["description"]) for name, field in form.items()}

    assert shown == {name: (field["label"], field["description"]) for name, field in CONNECTION_FIELDS.items()}


def test_form_fields_have_their_type(form):
    kinds = {name: type(field).__name__ for name, field in form.items()}

    assert kinds == {
        "user_bearer_token": "PasswordField",
        "token_type": "StringField",
        "dashboard_url": "StringField",
        "request_timeout": "StringField",
        "verify": "StringField",
        "max_kickoffs_per_day": "StringField",
        "cancel_on_kill": "BooleanField",
        "cancel_on_timeout": "BooleanField",
        "proxy": "PasswordField",
        "allow_http": "BooleanField",
    }
