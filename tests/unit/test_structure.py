"""Who may know what, and how modules are named, read from the source of the package and of its tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

import airflow_provider_crew

NAME = "airflow_provider_crew"
PACKAGE = Path(airflow_provider_crew.__file__).parent


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


# By their whole names: there are many crew.py, and more __init__.py.
MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Tell the module of each import, or what is taken from it: of ``from a import b``, ``a.b``."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "what is imported is named in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def anywhere(module: str) -> set[str]:
    """Find what a module imports, also in its functions, and for its types alone."""
    return set(imports(ast.walk(tree(module))))


def at_run_time(module: str) -> set[str]:
    """Find the imports of a module and of its functions, except those for types alone."""
    return set(imports(but_for_types(tree(module))))


def but_for_types(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from but_for_types(child)


def ours(imported: set[str]) -> set[str]:
    """Name the modules of this package among what is imported: ``a.b`` may be one, or something in ``a``."""
    named = {name if name in MODULES else name.rpartition(".")[0] for name in imported}
    return named & MODULES.keys()


def is_in(part: str, name: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def found_in(part: str) -> list[str]:
    return [module for module in MODULES if is_in(f"{NAME}.{part}", module)]


@pytest.mark.parametrize("part", ["client", "local"])
def test_client_and_local_server_do_not_import_airflow(part):
    assert found_in(part)
    assert [
        (module, name) for module in found_in(part) for name in anywhere(module) if is_in("airflow", name)
    ] == []


def test_local_server_does_not_import_the_client():
    used = {(module, other) for module in found_in("local") for other in anywhere(module) if is_in(NAME, other)}

    assert {(module, other) for module, other in used if not is_in(f"{NAME}.local", other)} == set()


# From the lowest to the highest.
LAYERS = ("client", "links", "hooks", "triggers", "task", "answers", "operators", "sensors", "decorators")
# Features that use a whole attempt, so nothing else uses them.
ON_TOP = {f"{NAME}.tool.agent"}


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_down(layer):
    higher = LAYERS[LAYERS.index(layer) + 1 :]
    upward = [f"{NAME}.{part}" for part in (*higher, "plugins", "cli", "local")]
    if layer == "client":
        upward += [f"{NAME}.versions", f"{NAME}.api_server"]

    assert found_in(layer)
    assert {
        (module, other)
        for module in found_in(layer)
        if module not in ON_TOP
        for other in ours(at_run_time(module))
        if any(is_in(part, other) for part in upward) or other in ON_TOP
    } == set()


def test_imports_have_no_circles_even_among_types():
    # The package itself only opens its rooms, and every room may ask it for the version.
    uses = {module: ours(anywhere(module)) - {NAME} for module in MODULES}

    assert {module for module in MODULES.keys() - {NAME} if module in reached_from(uses[module], uses)} == set()


def reached_from(begin: set[str], uses: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = set(begin)
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= uses[module] - reached
    return reached


# Modules of Airflow's public interface. Of the SDK itself, every name is public.
PUBLIC = (
    "airflow.cli.cli_config",
    "airflow.exceptions",
    "airflow.providers",
    "airflow.sdk.exceptions",
    "airflow.triggers.base",
)


def test_private_modules_of_airflow_are_on_their_page():
    page = (PACKAGE.parent / "docs/decisions/16-private-names.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(airflow\.[a-z_.]+)`", page))
    used = {name for module in MODULES for name in anywhere(module) if is_in("airflow", name)}
    private = {name for name in used if not re.fullmatch(r"airflow(\.sdk)?\.\w+", name)}
    private -= {name for name in used for part in PUBLIC if is_in(part, name)}

    assert {name for name in private if not any(is_in(part, name) for part in listed)} == set()
    assert {part for part in listed if not any(is_in(part, name) for name in private)} == set()


# What only the client says to the service, or reads from it.
PATHS = ("/kickoff", "/inputs", "/status")
HEADERS = ("Authorization", "Bearer ", "Retry-After", "User-Agent")
KEYS = (
    *("current_agent", "current_task", "last_executed_task", "total_tasks", "completed_tasks"),
    *("final_output", "result_json", "usage_metrics"),
)
STATUS_WORDS = (
    *("queued", "pending", "started", "running", "paused", "completed", "success", "error", "failed"),
    *("failure", "revoked", "not found", "not_found"),
)
# What this package says itself of an execution, or of its own doing, and Airflow of a task, in lower case.
OWN_WORDS = {"started", "running", "paused", "completed", "error", "failed", "success"}


def texts(module: str) -> Iterator[str]:
    """Find every text in the code of a module, but for its docstrings."""
    alone = {id(node.value) for node in ast.walk(tree(module)) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def is_of_the_service(text: str) -> bool:
    return (
        text in KEYS
        or (text.lower() in STATUS_WORDS and text not in OWN_WORDS)
        or re.search(rf"^\S*({'|'.join(PATHS)})(/\S*)?$", text) is not None
        or any(header in text for header in HEADERS)
    )


def test_only_the_client_has_the_words_of_the_service():
    # kickoff_records sends requests to Airflow, which takes bearer tokens as well.
    others = MODULES.keys() - {*found_in("client"), *found_in("local"), *found_in("kickoff_records")}

    assert others
    assert {(module, text) for module in others for text in texts(module) if is_of_the_service(text)} == set()


def values_of(name: str, module: str) -> Iterator[ast.AST]:
    """Find what a module gives under a name: as an argument, in a dictionary, or as an item."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Dict):
            keys = zip(node.keys, node.values, strict=True)
            yield from (value for key, value in keys if isinstance(key, ast.Constant) and key.value == name)
        elif (isinstance(node, ast.keyword) and node.arg == name) or (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(f"['{name}']")
        ):
            yield node.value


def test_next_steps_are_written_in_one_place():
    writers = {module for module in MODULES for value in values_of("next_step", module) if has_text(value)}

    assert writers == {f"{NAME}.task.verdict"}


def has_text(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Constant) and " " in str(node.value) for node in ast.walk(value))


TESTS = Path(__file__).parents[1]
_PRIVATE = re.compile(r"(?:^|\.)(_[A-Za-z]\w*)")


def named_by(node: ast.AST) -> Iterator[str]:
    """Find the names that code defines, those of its own attributes among them."""
    for child in ast.walk(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif is_assigned(child) and ast.unparse(child.value) == "self":
            yield child.attr


def is_assigned(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def private_names_in(node: ast.AST) -> Iterator[str]:
    """Find private names in texts, as ``setattr`` and ``patch`` take them, and those assigned to other objects."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield from _PRIVATE.findall(child.value)
        elif is_assigned(child) and ast.unparse(child.value) != "self":
            yield from _PRIVATE.findall(child.attr)
        if not isinstance(child, ast.JoinedStr):
            yield from private_names_in(child)


def test_tests_replace_no_private_name():
    """Such a test keeps code from changing. Use ``Timing``, the local server, a task's store or an argument."""
    private = {name for module in MODULES for name in named_by(tree(module)) if _PRIVATE.fullmatch(name)}
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    naming = (path for path, text in texts.items() if not private.isdisjoint(re.findall(r"\b_\w+", text)))
    trees = {path: ast.parse(texts[path]) for path in naming}

    assert private
    assert {
        (path.name, found)
        for path, parsed in trees.items()
        for found in private.intersection(private_names_in(parsed)) - set(named_by(parsed))
    } == set()
