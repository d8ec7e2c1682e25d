"""Who may know what, and how modules are named, read from the source of the package and of its tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import airflow_provider_crew

NAME = "airflow_provider_crew"
PACKAGE = Path(airflow_provider_crew.__file__).parent


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


# By their whole names: there are many crew.py, and more __init__.py.
MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def source(module: str) -> str:
    return MODULES[module].read_text(encoding="utf-8")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(source(module))


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


@pytest.mark.parametrize(("part", "other"), [("client", "airflow"), ("local", "airflow"), ("local", NAME)])
def test_client_needs_no_airflow_and_local_server_nothing(part, other):
    used = {(module, name) for module in found_in(part) for name in anywhere(module) if is_in(other, name)}

    assert found_in(part)
    assert {(module, name) for module, name in used if not is_in(f"{NAME}.{part}", name)} == set()


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
    optional = {NAME, *found_in("settle")}
    TopologicalSorter({module: ours(anywhere(module)) - {*optional, module} for module in MODULES}).prepare()


def test_experimental_folder_is_imported_late_and_in_three_places():
    """Removing it is removing these imports."""

    def found(nodes: Iterator[ast.AST]) -> list[str]:
        return [name for name in imports(nodes) if is_in(f"{NAME}.settle", name)]

    trees = [tree(module) for module in MODULES if module not in found_in("settle")]
    functions = [each for one in trees for each in ast.walk(one) if isinstance(each, ast.FunctionDef)]
    late = [name for function in functions for name in found(ast.walk(function))]

    assert 0 < len(late) <= 3
    assert sorted(late) == sorted(name for one in trees for name in found(ast.walk(one)))


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
