"""A Chromium without a window, told what to do over a pipe: for pictures and tests of what a browser shows."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Self

from dev.loopback import HOST

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser")
_PATIENCE = 300.0
_PAUSE = 0.1
_FLAGS = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # which root cannot have
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    # Nothing leaves this machine, whatever a page tries. What it tries is seen all the same.
    f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {HOST}",
]
# The browser reads from 3 and writes to 4; what is handed over has other numbers.
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class ChromiumError(Exception):
    """The browser did not do what it was told. The message says what, and why."""


class Chromium:
    """
    One browser with an empty profile.

    with Chromium() as browser:
        page = browser.page()
        page.open("http://127.0.0.1:8080")
        assert page.evaluate("document.title") == "Airflow"
    """

    def __init__(self) -> None:
        if EXECUTABLE is None:
            raise ChromiumError("Chromium is not installed: apt-get install chromium")
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        told, self._in = os.pipe()
        self._out, tells = os.pipe()
        told, tells = _out_of_the_way(told), _out_of_the_way(tells)
        start = [sys.executable, "-I", "-c", _START, str(told), str(tells)]
        self._process = subprocess.Popen(  # noqa: S603 - the system's own browser, with our flags
            [*start, EXECUTABLE, f"--user-data-dir={self._profile}", *_FLAGS],
            pass_fds=(told, tells),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(told)
        os.close(tells)
        self._read = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def page(self) -> Page:
        """Open an empty page that shares nothing with the others."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._pages[session].call(f"{domain}.enable")
        return self._pages[session]

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Have a method of the browser's protocol done, and return its result."""
        number = self.tell(method, session, **parameters)
        until = time.monotonic() + _PATIENCE
        while number not in self._answers:
            self._listen(until, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise ChromiumError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def tell(self, method: str, session: str | None = None, **parameters: Any) -> int:
        """Tell the browser to do something, and do not wait for it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        return self._number

    def _listen(self, until: float, what: str) -> None:
        """Take in what the browser says next."""
        ready, _, _ = select.select([self._out], [], [], max(0, until - time.monotonic()))
        said = os.read(self._out, 1 << 20) if ready else b""
        if not said:
            raise ChromiumError(f"{what}: {'the browser has ended' if ready else 'no answer'}")
        *messages, self._read = (self._read + said).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].note(message["method"], message["params"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # It ends when nobody tells it anything any more.
        os.close(self._in)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)


class Page:
    """One page, with what it asked for and what went wrong in it."""

    def __init__(self, browser: Chromium, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.requests: list[str] = []
        self._unanswered: dict[str, str] = {}
        self.dialogs: list[str] = []
        self.errors: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have a method of the browser's protocol done for this page."""
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Go to an address. What the page does then is not waited for."""
        problem = self.call("Page.navigate", url=url).get("errorText")
        if problem:
            raise ChromiumError(f"{url}: {problem}")

    def forget(self) -> None:
        """Forget what it has asked for, and what went wrong in it."""
        self.requests.clear()
        self.dialogs.clear()
        self.errors.clear()

    def close(self) -> None:
        """Close it, and forget what it has kept."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def log_in(self, url: str, token: str) -> None:
        """Be somebody for Airflow at this address, as after its own login."""
        self.call("Network.setCookie", name="_token", value=token, url=url, httpOnly=True)

    def evaluate(self, expression: str) -> Any:
        """Return what JavaScript makes of an expression, awaited."""
        told = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise ChromiumError(f"{expression}: {told['exceptionDetails']['exception'].get('description')}")
        return told["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + _PATIENCE
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > until:
                shown = self.evaluate("document.body?.innerText")
                waits = f"It waits for {list(self._unanswered.values())}. Errors: {self.errors}"
                raise ChromiumError(f"{expression} did not come true. {waits} The page says:\n{shown}")
            time.sleep(_PAUSE)

    def press(self, key: str) -> None:
        """Press a key, as Tab or Enter."""
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **_KEYS.get(key, {}), **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, **_KEYS.get(key, {}))

    def resize(self, width: int, height: int) -> None:
        """Be a screen of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def save_picture(self, path: Path, clip: dict[str, float] | None = None) -> None:
        """Write what is shown, or a part of it, as PNG."""
        part = {"clip": clip | {"scale": 1}} if clip else {}
        shown = self.call("Page.captureScreenshot", format="png", **part)
        path.write_bytes(base64.b64decode(shown["data"]))

    def note(self, event: str, about: dict[str, Any]) -> None:
        """Take note of what happened in the page."""
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
            self._unanswered[about["requestId"]] = about["request"]["url"]
        elif event in {"Network.loadingFinished", "Network.loadingFailed"}:
            self._unanswered.pop(about["requestId"], None)
        elif event == "Page.javascriptDialogOpening":
            self.dialogs.append(about["message"])
            self._browser.tell("Page.handleJavaScriptDialog", self._session, accept=False)
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and about["type"] == "error":
            said = [each.get("value") or each.get("description") for each in about["args"]]
            self.errors.append(" ".join(map(str, said)))


_KEYS = {"Tab": {"windowsVirtualKeyCode": 9}, "Enter": {"windowsVirtualKeyCode": 13}}


def _out_of_the_way(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100)
    os.close(descriptor)
    return moved
