"""The local server's pages for a browser."""

from html.parser import HTMLParser

import pytest
import requests

from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask, When

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>[a](javascript:alert(1)) {{ 7 * 7 }}"
AIRFLOW = "http://airflow.example:8080"
TASK = {"dag_id": "daily", "run_id": "manual__2026-01-01T00:00:00+00:00", "task_id": "report", "map_index": -1}
TASK_PATH = "/dags/daily/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/report"


class Page(HTMLParser):
    """What a page has: its tags, links and texts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.links, self.badges, self.ids, self.text = [], {}, [], [], ""
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open = (tag, dict(attributes))

    def handle_endtag(self, _):
        self._open = ("", {})

    def handle_data(self, data):
        tag, attributes = self._open
        if tag == "style":
            return
        self.text += data
        kind = (attributes.get("class") or "").split()
        if tag == "a":
            self.links[data] = attributes["href"]
        if tag == "a" and "id" in kind:
            self.ids.append(data)
        if tag == "span" and "badge" in kind:
            self.badges.append(kind[1])

    def has(self, tag):
        return any(name == tag for name, _ in self.tags)

    @property
    def reloads(self):
        return any(attributes.get("http-equiv") == "refresh" for _, attributes in self.tags)


@pytest.fixture
def page():
    """Load a page as a browser that has logged in."""

    def load(client, path="/local/"):
        answer = client.get(path, headers={"Accept": "text/html,*/*;q=0.8"}, auth=("", client.token))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert client.token not in answer.text
        return Page(answer.text)

    return load


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"), ("*/*", "application/json")],
)
def test_browser_gets_a_page_and_a_program_json(serve, accept, content_type):
    client = serve()
    url = client.service.dashboard_url.format(kickoff_id=client.kickoff())

    answer = requests.get(url, headers={"Accept": accept}, timeout=60)

    assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
    assert requests.get(f"{url}x", headers={"Accept": accept}, timeout=60).status_code == 404


def test_waiting_execution_comes_first_and_stops_the_reload(serve, clock, page):
    inputs = (CrewInput(name="topic"),)
    ask = ScenarioTask(name="ask", seconds=5, human_input=True, output="# A draft\n\n- one")
    scenario = Scenario(
        inputs=inputs, tasks=(ScenarioTask(name="work", seconds=60),), when=[When(topic="a", tasks=[ask])]
    )
    client = serve(scenario)
    nothing = page(client)
    waiting = client.kickoff({"topic": "a"})
    clock.now += 10
    running = client.kickoff({"topic": "b"})
    both = page(client)
    alone = page(client, f"/executions/{waiting}")
    client.service.approve(waiting)
    one = page(client)
    clock.now += 60
    none = page(client)

    assert (nothing.ids, nothing.reloads) == ([], False)
    assert (both.ids, both.badges, both.reloads) == ([waiting, running], ["waiting", "active"], False)
    assert "A draft" in both.text
    assert both.has("li")
    assert both.has("textarea")
    assert (alone.has("textarea"), alone.reloads) == (True, False)
    assert (one.ids, one.badges, one.reloads) == ([running, waiting], ["active", "good"], True)
    assert not one.has("form")
    assert (none.badges, none.reloads) == (["good", "good"], False)


@pytest.mark.parametrize(("index", "path", "name"), [(-1, "", "report"), (0, "/mapped/0", "report[0]")])
def test_page_links_to_the_airflow_task(serve, page, index, path, name):
    client = serve()
    client.service.airflow_url = AIRFLOW
    kickoff_id = client.kickoff(meta={"airflow": {**TASK, "map_index": index, "try_number": 2}})

    for shown in (page(client), page(client, f"/executions/{kickoff_id}")):
        assert shown.links[f"daily / {name}"] == f"{AIRFLOW}{TASK_PATH}{path}"


@pytest.mark.parametrize("ends", [{}, {"error": HOSTILE}, {"human_input": True}])
def test_hostile_text_is_no_markup(serve, clock, page, ends):
    hostile = ScenarioTask(name=HOSTILE, agent=HOSTILE, seconds=1, output=HOSTILE)
    tasks = (hostile, hostile.model_copy(update=ends))
    client = serve(Scenario(inputs=(), tasks=tasks))
    client.service.airflow_url = AIRFLOW
    client.service.next_kickoff_id(HOSTILE)
    meta = {
        "airflow": {"dag_id": HOSTILE, "run_id": HOSTILE, "task_id": HOSTILE, "map_index": 1},
        HOSTILE: HOSTILE,
    }
    client.kickoff({HOSTILE: HOSTILE}, meta=meta)
    running = page(client)
    clock.now += 10
    listed = page(client)

    for shown in (running, listed, page(client, listed.links[HOSTILE])):
        assert not any(shown.has(tag) for tag in ("script", "img", "iframe", "object", "link", "base"))
        assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
        assert all(link.startswith(("/", AIRFLOW)) or not link for link in shown.links.values())
        assert "49" not in shown.text.replace("7 * 7", "")


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x1b"])
def test_hidden_character_is_visible(serve, clock, page, hidden):
    text = f"{hidden}gnp.exe"
    client = serve(Scenario(inputs=(), tasks=(ScenarioTask(name=text, agent=text, seconds=1, output=text),)))
    kickoff_id = client.kickoff({text: text}, meta={"a": text})
    clock.now += 10

    for shown in (page(client), page(client, f"/executions/{kickoff_id}")):
        assert f"⟨U+{ord(hidden):04X}⟩gnp.exe" in shown.text
        assert hidden not in shown.text
