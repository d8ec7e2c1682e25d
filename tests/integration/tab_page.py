"""Page in a Chromium with the modules of the Crew tab, and with a small stand-in for React."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_crew.plugins
from dev.chromium import EXECUTABLE, Chromium, Page
from dev.loopback import HOST

TAB = Path(airflow_provider_crew.plugins.__file__).with_name("tab")

# Elements are plain objects. draw() writes them as text, with the attributes that tests compare. Nothing is drawn
# again if a state changes, but noted() gets each new one.
REACT = """
globalThis.React = {
    Children: { toArray: (all) => [all].flat(Infinity).filter((each) => each != null && each !== false) },
    Fragment: ({ children }) => children,
    createElement: (type, props, ...children) => {
        const inside = children.length === 1 ? children[0] : children;
        const all = { ...props, ...(children.length && { children: inside }) };
        return { type, children, props: all };
    },
    useEffect: () => undefined,
    useRef: (current) => ({ current }),
    useState: (value) => [value, (next) => globalThis.noted?.(next)],
};
// The elements within one, at any depth, as a browser would make them.
globalThis.elements = (node) => {
    if (Array.isArray(node)) return node.flatMap(elements);
    if (typeof node?.type === "function") return elements(node.type(node.props));
    return node?.type ? [node, ...elements(node.props.children)] : [];
};
globalThis.draw = (node) => {
    if (node == null || typeof node === "boolean") return "";
    if (Array.isArray(node)) return node.map(draw).join("");
    if (typeof node !== "object") return String(node);
    const { type, props } = node;
    if (typeof type === "function") return draw(type(props));
    const shown = { href: props.href, start: props.start, align: props.style?.textAlign };
    const given = Object.entries(shown).filter(([, value]) => value !== undefined);
    const attributes = given.map(([name, value]) => ` ${name}=${value}`).join("");
    return `<${type}${attributes}>${draw(props.children)}</${type}>`;
};
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer((HOST, 0), partial(Handler, directory=folder)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Return an empty page that can import the modules."""
    if EXECUTABLE is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with served(TAB) as url, Chromium() as browser:
        opened = browser.page()
        opened.open(f"{url}/crew.svg")
        opened.wait_for("document.documentElement?.tagName === 'svg'")
        opened.evaluate(REACT)
        yield opened
