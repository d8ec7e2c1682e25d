"""Connection form for Airflow up to 3.1, built from the metadata that newer versions read themselves."""

from typing import Any

from airflow_provider_crew.compat import HIDES_EXTRA
from airflow_provider_crew.get_provider_info import CONNECTION_FIELDS, FORM_BEHAVIOUR


def widgets() -> dict[str, Any]:
    """Return a form field for each field of the connection's extra."""
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from flask_babel import lazy_gettext
    from wtforms import BooleanField, PasswordField, StringField

    def widget(label: str, description: str, schema: dict[str, Any]) -> Any:
        shown: dict[str, Any] = {"label": lazy_gettext(label), "description": description}
        if "boolean" in schema["type"]:
            return BooleanField(**shown, default=schema["default"])
        if schema.get("format") == "password":
            return PasswordField(**shown, widget=BS3PasswordFieldWidget())
        return StringField(**shown, widget=BS3TextFieldWidget())

    return {name: widget(**field) for name, field in CONNECTION_FIELDS.items()}


def behaviour() -> dict[str, Any]:
    """Return the hidden standard fields and the labels of the others."""
    named = {key.replace("-", "_"): value for key, value in FORM_BEHAVIOUR.items()}
    hidden = [field for field in named["hidden_fields"] if field != "extra" or HIDES_EXTRA]
    return named | {"hidden_fields": hidden}
