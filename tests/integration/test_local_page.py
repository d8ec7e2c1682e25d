"""The local server's pages in a browser, where people also answer a crew."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import requests

from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask, When
from tests.integration.local_client import Client

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>[a](javascript:alert(1)) {{ 7 * 7 }}"
HIDDEN = "\u202egnp.exe\x1b"
AIRFLOW = "http://airflow.example:8080"
TASK = {"dag_id": "daily", "run_id": "manual__2026-01-01T00:00:00+00:00", "task_id": "report", "map_index": -1}
TASK_PATH = "/dags/daily/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/report"
ASKS = ScenarioTask(name="ask", seconds=5, human_input=True, output="# A draft\n\n- one")


class Page(HTMLParser):
    """What a page has: its tags, links and texts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.links, self.text = [], {}, ""
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self._open = (tag, dict(attributes))
        self.tags.append(self._open)

    def handle_data(self, data):
        tag, attributes = self._open
        self.text += "" if tag == "style" else data
        if tag == "a":
            self.links.setdefault(data, attributes["href"])

    def handle_endtag(self, _):
        self._open = ("", {})

    def has(self, tag, **wanted):
        return any(name == tag and wanted.items() <= attributes.items() for name, attributes in self.tags)

    @property
    def reloads(self):
        return self.has("meta", **{"http-equiv": "refresh"})


class Browser(Client):
    """A browser that has logged in."""

    def load(self, path="/local/", **options):
        return self.get(path, **{"headers": {"Accept": "text/html,*/*;q=0.8"}, "auth": ("", self.token)} | options)

    def page(self, path="/local/"):
        response = self.load(path)
        assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert self.token not in response.text
        return Page(response.text)

    def form(self):
        """Read the hidden fields of the first form on the page."""
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.load().text)[:2])

    def answer(self, *, origin=None, host=None, **form):
        headers = {"Origin": self.service.url if origin is None else origin} | ({"Host": host} if host else {})
        url = f"{self.service.url}/local/"
        auth = ("anybody", self.token)
        return requests.post(url, data=form, headers=headers, auth=auth, allow_redirects=False, timeout=60)


@pytest.fixture
def browse(serve):
    return lambda **keys: Browser(serve(Scenario(**{"inputs": ()} | keys)).service)


@pytest.fixture
def browser(browse):
    return browse(tasks=(ASKS, ScenarioTask(name="polish", output="the end")), dialect="deployed")


@pytest.fixture
def waiting(browser, clock):
    """Return the ID of an execution that waits for a person."""
    kickoff_id = browser.kickoff()
    clock.now += 60
    assert browser.status(kickoff_id)["state"] == "NOT FOUND"
    return kickoff_id


@pytest.mark.parametrize(
    ("accept", "content_type"), [("text/html,*/*;q=0.8", "text/html; charset=utf-8"), ("*/*", "application/json")]
)
def test_browser_gets_a_page_and_a_program_json(browser, accept, content_type):
    url = browser.service.dashboard_url.format(kickoff_id=browser.kickoff())

    response = requests.get(url, headers={"Accept": accept}, timeout=60)

    assert (response.status_code, response.headers["content-type"]) == (200, content_type)
    assert requests.get(f"{url}x", headers={"Accept": accept}, timeout=60).status_code == 404


def test_page_can_load_run_and_send_nothing_but_its_form(browser):
    headers = browser.load().headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy.pop("style-src").startswith("'sha256-")  # its own style, and nothing that a crew could write
    nothing = dict.fromkeys(("default-src", "base-uri", "frame-ancestors"), "'none'")
    assert policy == nothing | {"form-action": "'self'"}
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/local/", {"auth": None}, 401),
        ("/local/", {"auth": ("anybody", "wrong")}, 401),
        *(
            ("/local/", {"headers": {"Host": host}}, 403)
            for host in ("crew.example", "127.0.0.1.crew.example:80", "")
        ),
        *(
            ("/local/", {"headers": {"Host": host}}, 200)
            for host in ("localhost:8765", "192.0.2.1:8765", "[::1]:8765")
        ),
    ],
)
def test_page_needs_token_and_address_of_this_machine(browser, waiting, path, options, status):
    response = browser.load(path, **options)

    assert response.status_code == status
    assert (waiting in response.text) is (status == 200)
    assert response.headers.get("www-authenticate", "").startswith("Basic ") is (status == 401)


def test_waiting_execution_comes_first_and_stops_the_reload(browse, clock):
    when = [When(topic="a", tasks=[ASKS])]
    browser = browse(inputs=[CrewInput(name="topic")], tasks=[ScenarioTask(name="work", seconds=60)], when=when)
    waiting = browser.kickoff({"topic": "a"})
    clock.now += 10
    running = browser.kickoff({"topic": "b"})
    both, alone = browser.page(), browser.page(f"/executions/{waiting}")
    browser.service.approve(waiting)
    one = browser.page()
    clock.now += 60
    none = browser.page()

    assert both.text.index(waiting) < both.text.index(running)
    assert one.text.index(running) < one.text.index(waiting)
    assert "A draft" in both.text
    assert both.has("li")
    assert [shown.has("textarea") for shown in (both, alone, one)] == [True, True, False]
    assert [shown.reloads for shown in (both, alone, one, none)] == [False, False, True, False]


@pytest.mark.parametrize(("index", "path", "name"), [(-1, "", "report"), (0, "/mapped/0", "report[0]")])
def test_page_links_to_the_airflow_task(browser, index, path, name):
    browser.service.airflow_url = AIRFLOW
    kickoff_id = browser.kickoff(meta={"airflow": {**TASK, "map_index": index, "try_number": 2}})

    for shown in (browser.page(), browser.page(f"/executions/{kickoff_id}")):
        assert shown.links[f"daily / {name}"] == f"{AIRFLOW}{TASK_PATH}{path}"


@pytest.mark.parametrize("ends", [{}, {"error": HOSTILE}, {"human_input": True}])
def test_hostile_text_is_no_markup_and_hides_nothing(browse, clock, ends):
    text = HOSTILE + HIDDEN
    hostile = ScenarioTask(name=text, agent=text, seconds=1, output=text)
    browser = browse(tasks=(hostile, hostile.model_copy(update=ends)))
    browser.service.airflow_url = AIRFLOW
    browser.service.next_kickoff_id(HOSTILE)
    meta = {"airflow": {"dag_id": text, "run_id": text, "task_id": text, "map_index": 1}, text: text}
    browser.kickoff({text: text}, meta=meta)
    running = browser.page()
    clock.now += 10
    listed = browser.page()

    for shown in (running, listed, browser.page(listed.links[HOSTILE])):
        assert not any(shown.has(tag) for tag in ("script", "img", "iframe", "object", "link", "base"))
        assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
        assert all(link.startswith(("/", AIRFLOW)) or not link for link in shown.links.values())
        assert "49" not in shown.text.replace("7 * 7", "")
        assert "⟨U+202E⟩gnp.exe⟨U+001B⟩" in shown.text
        assert not {"\u202e", "\x1b"} & {*shown.text}


@pytest.mark.parametrize(("answer", "state"), [("approve", "SUCCESS"), ("reject", "STARTED")])
def test_page_takes_an_answer(browser, waiting, answer, state):
    response = browser.answer(**browser.form(), answer=answer, feedback="shorter")

    assert (response.status_code, response.headers["location"]) == (303, "/local/")
    assert browser.status(waiting)["state"] == state


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        *((origin, None) for origin in ("", "null", "http://crew.example", "http://127.0.0.1")),
        ("http://crew.example", "crew.example"),
    ],
)
def test_page_takes_no_answer_from_elsewhere(browser, waiting, origin, host):
    assert browser.answer(origin=origin, host=host, **browser.form(), answer="approve").status_code == 403
    assert browser.status(waiting)["state"] == "NOT FOUND"


def test_page_approves_only_of_what_was_seen(browser, waiting, clock):
    seen = browser.form()
    browser.service.reject(waiting)
    clock.now += 5

    assert browser.answer(**seen, answer="approve").status_code == 409
    assert browser.answer(answer="approve").status_code == 409
    assert browser.status(waiting)["state"] == "NOT FOUND"
