"""Finds in the package what it warns of and what operators refuse: texts, with ``{}`` for what is filled in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1] / "airflow_provider_crew"
# What only passes on what was found elsewhere.
PASSED_ON = {
    "log.warning('%s', line)",
    "Line(level, f'Execution {self.kickoff_id}: {text}')",
    "Line(logging.WARNING, line)",
    "self._hook.log.log(line.level, '%s', line.text)",
    "self._line(text, logging.WARNING)",
    "self.log.warning('%s', line)",
    "task.log.log(level, '%s', line)",
    "task.warn(doubt)",
    "warn(self.log, text)",
}
_OUR_EXECUTION = "Execution {}: "
_LOUD = {"warning", "error", "exception", "critical"}


class Warned(NamedTuple):
    """A text that the log is told; ``line``: the part of it that is not wrapped."""

    text: str
    line: str
    code: str


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """Parse the package, but for the local service, which talks to nobody at three in the morning."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.is_relative_to(PACKAGE / "local"):
            yield path, ast.parse(path.read_text())


def warned() -> Iterator[Warned]:
    """Find every warning and every error that the package itself logs."""
    for path, tree in sources():
        names = vars(import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)))
        yield from warned_in(tree, names)


def warned_in(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[Warned]:
    """Find what one module warns of; ``names`` are its own, by which constants are found."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            code = ast.unparse(node)
            for text, line in _said(node, names):
                if code not in PASSED_ON:
                    yield Warned(text, line, code)
        elif isinstance(node, ast.FunctionDef) and node.name == "_doubts":
            for each in ast.walk(node):
                if isinstance(each, ast.Yield) and each.value:
                    yield Warned(text_of(each.value, names), "", ast.unparse(each))


def _said(call: ast.Call, names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    match call:
        case ast.Call(func=ast.Attribute(attr="_in_trouble"), args=[said, more]):
            line = f"{_OUR_EXECUTION}{text_of(said, names)}"
            yield f"{line} {text_of(more, names)}", line
        case ast.Call(func=ast.Attribute(attr="_line"), args=[said, _]):
            line = f"{_OUR_EXECUTION}{text_of(said, names)}"
            yield line, line
        case ast.Call(func=ast.Name(id="warn"), args=[_, said]):
            yield text_of(said, names), ""
        case ast.Call(func=ast.Attribute(attr="warn"), args=[said]):
            yield text_of(said, names), ""
        case (
            ast.Call(func=ast.Name(id="Line") | ast.Attribute(attr="log"), args=[_, said, *_])
            | ast.Call(func=ast.Attribute(attr=_), args=[said, *_])
        ) if _is_loud(call):
            yield text_of(said, names), text_of(said, names)


def _is_loud(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id="Line"):
            return True
        case ast.Attribute(attr="log"):
            return ast.unparse(call.args[0]) not in {"logging.DEBUG", "logging.INFO"}
        case ast.Attribute(attr=attr):
            return attr in _LOUD
    return False


def refused_at_parsing() -> Iterator[tuple[str, str]]:
    """Find what an operator refuses before a DAG runs with it."""
    for path in sorted((PACKAGE / "operators").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id="ValueError"), args=[said, *_])):
                    yield path.name, text_of(said, {})


def text_of(said: ast.expr, names: Mapping[str, Any]) -> str:
    """Return the text of an expression, as far as it is known before it is said."""
    match said:
        case ast.Constant(value=str(text)):
            return re.sub(r"%(?:\.\d)?[srfd]", "{}", text)
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part, names) for part in parts)
        case ast.FormattedValue(value=value):
            return text_of(value, names)
        case ast.Call(func=ast.Attribute(value=value, attr="format" | "format_map")):
            return re.sub(r"{\w*}", "{}", text_of(value, names))
        case ast.Name() | ast.Attribute():
            return _constant(said, names)
    return "{}"


def _constant(said: ast.Name | ast.Attribute, names: Mapping[str, Any]) -> str:
    """Return a text that a module holds under a name; what a call fills in is known to none."""
    name, *attributes = ast.unparse(said).split(".")
    value = names.get(name)
    for attribute in attributes:
        value = getattr(value, attribute, None)
    return value if isinstance(value, str) else "{}"
