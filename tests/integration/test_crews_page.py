"""Crews page: which requests it sends, and what it shows, in a Chromium without an Airflow."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dev.chromium import Page
from dev.loopback import HOST
from tests.integration.tab_values import FILE, made

pytest_plugins = ["tests.integration.tab_page"]

NOW = "2026-11-27T12:00:00Z"
FAILED = made({"like": "out of credit"})
COST = FAILED["end"]["billed"]

# Airflow, and the time, in the page.
WORLD = Path(__file__).with_name("crews_world.js").read_text()
_modules = itertools.count()


@pytest.fixture(scope="module")
def page(page: Page) -> Page:
    page.evaluate(WORLD)
    return page


def instance(run: str, state: str = "deferred", **others: Any) -> dict[str, Any]:
    known = {"dag_id": "briefings", "dag_run_id": run, "task_id": "write", "map_index": -1, "state": state}
    known |= {"try_number": 1, "start_date": NOW, "end_date": NOW, "rendered_map_index": None}
    return {"id": run, **known, "rendered_fields": {"crew_conn_id": "crew_default"}, **others}


def xcoms(instances: Sequence[dict[str, Any]], key: str = "crew_progress") -> list[dict[str, Any]]:
    names = ("dag_id", "task_id", "map_index")
    of_all = {"key": key, "timestamp": NOW, "run_after": NOW}
    return [{name: each[name] for name in names} | {"run_id": each["dag_run_id"]} | of_all for each in instances]


def world(
    instances: Sequence[dict[str, Any]], values: dict[str, Any] | None = None, **others: Any
) -> dict[str, Any]:
    known = {each["dag_run_id"]: {"crew_progress": shown()} for each in instances}
    known |= {run: {"crew_progress": value} for run, value in (values or {}).items()}
    return {"instances": list(instances), "asking": [], "xcoms": xcoms(instances), "values": known, **others}


def shown(**others: Any) -> dict[str, Any]:
    return made({"like": "crew", **others})


Requests = list[tuple[float, str]]


def watch(
    page: Page,
    of: dict[str, Any],
    seconds: float = 1,
    *,
    in_view: int = 20,
    dag: str = "",
    completed: bool = False,
) -> Requests:
    """Open the page in this world with the first rows in view, and return the requests of the first seconds."""
    filters = {"dag": dag, "days": "1", "withCompleted": completed}
    opening = f"open(globalThis.opened = '/crews.js?{next(_modules)}', {json.dumps(filters)}, {in_view})"
    page.evaluate(f"globalThis.world = {json.dumps(of)}; {opening}")
    return after(page, seconds)


def after(page: Page, seconds: float) -> Requests:
    """Return the requests since the last call, and those of the next seconds."""
    return [(at, url) for at, url in page.evaluate(f"pass({seconds}).then(() => asked.splice(0))")]


def crews(page: Page) -> list[dict[str, Any]]:
    return page.evaluate('import("/page.js").then(({ crewOf }) => told.rows.map(crewOf))')


def drawn(page: Page, expression: str) -> Any:
    """Return what an expression with the crews is, as in ``draw(Line({ crew: crews[0] }))``."""
    modules = 'import("/page.js").then(({ crewOf, itemsOf, Alike, Line, Nothing, Tokens, Unanswered }) => '
    return page.evaluate(f"{modules} {{ const crews = told.rows.map(crewOf); return {expression}; }})")


def details(requests: Requests) -> list[str]:
    return [url for _, url in requests if "/~/" not in url]


def most_in_a_minute(requests: Requests) -> int:
    return max(sum(1 for other, _ in requests if at <= other < at + 60) for at, _ in requests)


MANY = [instance(f"run-{number}") for number in range(1_000)]
ONE = MANY[1]


def test_thousand_crews_stay_within_the_requests_of_a_minute(page):
    # Each look finds that all have pushed their progress again.
    requests = watch(page, world(MANY, isRestless=True), 180, in_view=200)

    assert most_in_a_minute(requests) <= 60
    assert len([url for _, url in requests if "/~/taskInstances?state=running" in url]) >= 30
    assert len(details(requests)) > 80
    assert len(crews(page)) == 1_000


def test_rows_that_change_all_the_time_leave_requests_to_the_others(page):
    ended = [instance(f"ended-{number}", "failed") for number in range(15)]
    values = {each["dag_run_id"]: FAILED for each in ended}
    watch(page, world([*MANY[:25], *ended], values, isRestless=True), 120, in_view=40)
    assert all(crew["told"] for crew in crews(page))

    again = " ".join(details(after(page, 120)))
    assert [number for number in range(25) if f"/run-{number}/" not in again] == []


def test_detail_is_read_again_only_if_it_changed(page):
    of = world([instance(f"run-{number}", rendered_fields={}) for number in range(150)])
    of["xcoms"].reverse()
    for number, each in enumerate(of["xcoms"]):  # the oldest first, so they are read to the end
        each["timestamp"] = f"2026-11-27T11:{number // 60:02}:{number % 60:02}Z"
    assert len(details(watch(page, of))) == 20
    assert details(after(page, 60)) == []

    page.evaluate("world.xcoms[146].timestamp = '2026-11-27T12:00:00Z'")
    assert ["run-3" in url for url in details(after(page, 20))] == [True]
    assert len(crews(page)) == 150


def test_hidden_page_sends_no_request(page):
    def hide(hidden: str) -> None:
        page.evaluate(f"Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }})")

    watch(page, world([ONE]))
    hide("true")
    assert after(page, 120) == []
    hide("false")
    assert after(page, 30)


def test_completed_tasks_are_read_only_if_wanted(page):
    done = instance("done", "success")
    keys = [each for name in ("crew_progress", "return_value", "usage") for each in xcoms([done], name)]
    values = {"done": {"crew_progress": shown(), "usage": {"total_tokens": 3_410}}}
    of = world([done]) | {"xcoms": keys, "values": values}
    watch(page, of, 30)
    assert crews(page) == []

    requests = details(watch(page, of, 30, completed=True))
    (crew,) = crews(page)
    assert (crew["group"], crew["told"]["title"], crew["tokens"]) == ("completed", "Completed", 3_410)
    assert not any(url.endswith("return_value") for url in requests)


@pytest.mark.parametrize(
    ("end", "slow"), [("/~/taskInstances", "/~/xcomEntries"), ("/~/xcomEntries", "/~/taskInstances")]
)
def test_missing_permission_ends_the_requests(page, end, slow):
    watch(page, world([ONE], refused={end: 403}, slow=slow))

    assert page.evaluate("told.trouble.status") == 403
    assert after(page, 120) == []
    message = 'import("/tab.js").then(({ messageOf }) => messageOf(told.trouble, "this"))'
    assert "permission to read this" in page.evaluate(message)


@pytest.mark.parametrize("status", [408, 429, 503])
def test_outage_of_airflow_passes(page, status):
    watch(page, world([ONE], refused={"/~/taskInstances": status}))
    assert page.evaluate("told.trouble.status") == status

    page.evaluate("world.refused = {}")
    after(page, 30)
    assert page.evaluate("told.trouble") is None
    assert len(crews(page)) == 1


def test_request_shows_who_waits_before_the_row_is_in_view(page):
    rows = [instance("run-1"), instance("run-2"), instance("run-3", "failed")]
    asked = {"index": 0, "response_received": False, "created_at": NOW, "params": {"question": {"value": "q-1"}}}
    asking = [asked | {"subject": "Draft 2: Harbours\u202e <b>"}, {"index": 1}]
    of = world(rows, {"run-1": shown(tasks=[DRAFT])}, asking=asking)  # no poll has seen yet that the crew waits
    for in_view in (0, 3):
        watch(page, of, in_view=in_view)
        assert {crew["run"]: crew["group"] for crew in crews(page)} == {
            "run-1": "waiting",
            "run-2": "waiting",
            "run-3": "failed",
        }
        line = drawn(page, "draw(Line({ crew: crews.find((crew) => crew.run === 'run-1') }))")
        assert "<p>Draft 2: Harbours⟨U+202E⟩ <b>" in line
        assert "Electric ferries" not in line

    watch(page, of | {"refused": {"/hitlDetails": 404}}, in_view=0)
    assert {crew["group"] for crew in crews(page)} == {"running", "failed"}


@pytest.mark.parametrize("state", ["deferred", "scheduled", "queued", "running"])
def test_row_stays_from_the_end_of_a_trigger_to_the_next_process(page, state):
    of = world([instance("run-1", state), instance("new", "queued", start_date=None)], {"new": None})
    watch(page, of)
    (crew,) = [crew for crew in crews(page) if crew["run"] == "run-1"]
    assert (crew["group"], crew["told"]["title"]) == ("running", "Running")
    assert crew["told"]["bar"]["says"] == "1 of 3 tasks done"


@pytest.mark.parametrize("state", ["deferred", "scheduled", "queued", "running"])
def test_row_of_an_answered_crew_does_not_wait_for_people(page, state):
    at = "2026-11-27T11:59:00Z"
    answer = {"index": 0, "response_received": True, "responded_at": at, "chosen_options": ["Approve"]}
    asked = answer | {"subject": "Draft", "params": {"question": {"value": "q-1"}}}
    paused = shown(state="paused", since=0)
    watch(page, world([instance("run-1", state)], {"run-1": paused}, asking=[asked]))
    assert (crews(page)[0]["group"], crews(page)[0]["told"]["title"]) == ("running", "Answered")


QUESTION = {"question": {"task_id": "q-2", "draft": "# Ferries"}, "known": ["q-1", "q-2"]}


@pytest.mark.parametrize("state", ["deferred", "scheduled", "queued", "running"])
@pytest.mark.parametrize("asked", ["", "q-1", "q-2"])
def test_crew_that_has_asked_waits_before_its_request_is_open(page, state, asked):
    row = instance("run-1", state)
    answer = {"index": 0, "response_received": True, "responded_at": NOW, "chosen_options": ["Approve"]}
    asking = [answer | {"subject": "Draft", "params": {"question": {"value": asked}}}] if asked else []
    of = world([row], asking=asking)  # polls have found it at work since the answer
    of["values"]["run-1"]["crew_question"] = QUESTION
    of["xcoms"] += xcoms([row], "crew_question")
    watch(page, of)
    expected = ("running", "Running") if asked == "q-2" else ("waiting", "Waiting for human input")
    assert (crews(page)[0]["group"], crews(page)[0]["told"]["title"]) == expected

    watch(page, of | {"refused": {"/hitlDetails": 403}})
    assert crews(page)[0]["told"]["title"] == "Running"


@pytest.mark.parametrize("option", ["Approve", "No answer is needed any longer"])
def test_answered_or_closed_request_is_seen_by_the_next_look(page, option):
    asked = {"index": 0, "response_received": False, "subject": "Draft", "params": {"question": {"value": "q-2"}}}
    of = world([instance("run-1")], {"run-1": shown(state="paused", since=0)}, asking=[asked])
    of["values"]["run-1"]["crew_question"] = QUESTION
    of["xcoms"] += xcoms(of["instances"], "crew_question")
    watch(page, of, 14)  # after the look that reads all lists
    assert crews(page)[0]["told"]["question"]["form"]

    response = {"response_received": True, "responded_at": NOW, "chosen_options": [option]}
    page.evaluate(f"Object.assign(world.asking[0], {json.dumps(response)})")
    if option == "Approve":
        page.evaluate("world.instances[0].state = 'queued'")
    else:
        page.evaluate("world.xcoms[0].timestamp = '2026-11-27T12:00:20Z'")
        page.evaluate("world.values['run-1'].crew_progress.state = 'running'")
    after(page, 7)
    assert crews(page)[0]["told"]["title"] == ("Answered" if option == "Approve" else "Running")


def failed_alike(count: int, *, reason: str = "crew_reason_a", **others: Any) -> dict[str, Any]:
    """Return a world with so many tasks that failed for the same reason, after 4,200 tokens each."""
    rows = [instance(f"fail-{number}", "failed", **others) for number in range(count)]
    end = FAILED["end"] | {"if_cleared": "starts another execution (billed)", "tokens": 4_200}
    of = world(rows, dict.fromkeys([row["dag_run_id"] for row in rows], FAILED))
    since = [each | {"timestamp": "2026-11-27T12:00:01Z"} for each in xcoms(rows, reason)]
    values = {run: value | {reason: end} for run, value in of["values"].items()}
    return of | {"xcoms": [*of["xcoms"], *since], "values": values}


def test_failed_tasks_are_grouped_by_reason_without_their_details(page):
    requests = watch(page, failed_alike(150), in_view=0)

    assert len(details(requests)) == 1  # what the reason means
    assert {(crew["group"], crew["look"]["title"]) for crew in crews(page)} == {("failed", "Failed")}
    (text,) = drawn(page, "itemsOf(crews).map(([, crews]) => draw(Alike({ crews })))")
    assert "out of credit" in text
    assert "150 tasks" in text
    assert "briefings · write" in text
    assert "Clearing starts 150 new executions, about 630,000 tokens." in text
    assert details(after(page, 60)) == []


def test_failed_tasks_with_another_end_are_another_group(page):
    of = failed_alike(3)
    of["instances"][0]["state"] = "up_for_retry"
    of["values"]["fail-0"]["crew_reason_a"]["if_retried"] = "starts another execution (billed)"
    of["xcoms"][-1]["key"] = "crew_reason_b"  # has no value
    watch(page, of, in_view=0)
    texts = drawn(page, "itemsOf(crews).map(([, crews]) => draw(Alike({ crews })))")
    assert ["<span>1 task</span>" in each for each in texts] == [True, True, True]
    assert sum("Airflow retries the task, and it starts another" in each for each in texts) == 1
    assert sum("Clearing starts 1 new execution, about 4,200 tokens." in each for each in texts) == 1


def test_reason_of_an_earlier_attempt_is_not_that_of_a_later_one(page):
    of = failed_alike(1, start_date="2026-11-27T12:30:00Z")
    watch(page, of, in_view=0)
    assert [(crew["look"]["title"], crew["told"]) for crew in crews(page)] == [("Task failed", None)]


def test_row_shows_its_state_and_time_before_its_details(page):
    states = {"run-1": "failed", "run-2": "up_for_retry", "run-3": "deferred"}
    watch(page, world([instance(*each) for each in states.items()]), in_view=0)
    before = drawn(page, "Object.fromEntries(crews.map((crew) => [crew.run, draw(Line({ crew }))]))")
    titles = {"run-1": "Task failed", "run-2": "Waiting for retry", "run-3": "Running"}
    assert {run for run, title in titles.items() if f"<span>{title}</span>" in before[run]} == {*titles}
    assert [run for run in titles if " ago</span>" in before[run]] == ["run-1", "run-2"]

    watch(page, world([instance(*each) for each in states.items()], {"run-1": FAILED}))
    assert [text.count("<div>") for text in drawn(page, "crews.map((crew) => draw(Line({ crew })))")] == [1, 1, 1]


def test_effect_of_no_answer_is_told_once(page):
    rows = [instance(f"run-{number}") for number in range(3)]
    deadlines = {row["dag_run_id"]: {"ago": -3600 * (3 - at)} for at, row in enumerate(rows)}
    watch(page, world(rows, {run: shown(state="paused", deadline=made(at)) for run, at in deadlines.items()}))
    text = drawn(page, "draw(Unanswered({ crews }))")
    assert text.count("the first task stops waiting in") == 1
    assert "the execution keeps running and is billed" in text
    assert not any("stops waiting" in line for line in drawn(page, "crews.map((crew) => draw(Line({ crew })))"))


def test_new_step_and_end_are_seen_within_five_seconds(page):
    of = world([instance("run-1"), instance("run-2")])
    watch(page, of, 20)
    page.evaluate("world.xcoms[0].timestamp = '2026-11-27T12:00:20Z'")
    page.evaluate("world.values['run-1'].crew_progress.doing = 'task 3 of 3'")
    after(page, 5)
    assert "task 3 of 3" in {crew["told"]["sentence"] for crew in crews(page)}

    page.evaluate("world.instances[0].state = 'failed'")
    after(page, 5)
    assert sorted(crew["look"]["title"] for crew in crews(page)) == ["Failed", "Running"]


@pytest.mark.parametrize("look", range(1, 8))
def test_task_that_ends_between_two_lists_is_in_one_of_them(page, look):
    watch(page, world([instance("run-1")], slow="state=", isRestless=True), 0.25)
    for _ in range(look):
        while not any("taskInstances?state=running" in url for _, url in after(page, 0.25)):
            pass
    page.evaluate("world.instances[0].state = 'failed'")
    for _ in range(32):
        after(page, 0.25)
        assert len(crews(page)) == 1
    assert [crew["group"] for crew in crews(page)] == ["failed"]


@pytest.mark.parametrize("crews", [0, 2, 300])
def test_quiet_page_sends_thirty_requests_a_minute(page, crews):
    watch(page, world([instance(f"run-{number}") for number in range(crews)]), 60)
    assert len(after(page, 60)) <= 30


DRAFT = made({"like": "draft", "output": "\n## **Electric ferries**\n\nText"})


def test_row_shows_where_its_crew_is_and_what_it_costs(page):
    rows = {name: row for name, *row in FILE["crews"]}
    states = [instance(name, state) for name, (state, *_) in rows.items()]
    watch(page, world(states, {name: made(value) for name, (_, value, *_) in rows.items()}))

    lines = dict(drawn(page, "crews.map((crew) => [crew.run, [crew.group, draw(Line({ crew, isOpen: true }))]])"))
    assert {name: group for name, (group, _) in lines.items()} == {name: row[2] for name, row in rows.items()}
    missing = {name: [each for each in row[3] if each not in lines[name][1]] for name, row in rows.items()}
    assert {name: each for name, each in missing.items() if each} == {}


@pytest.mark.parametrize(("others", "end"), FILE["crew links"])
def test_row_has_one_link_to_the_tab_of_its_task(page, others, end):
    of = instance("r?1", dag_id="a/b", task_id="\u202et", rendered_map_index="\u202e", **others)
    draft = DRAFT | {"output": "[a\u202e](https://evil.example)", "task_id": "\u202e"}
    watch(page, world([of], {"r?1": shown(state="paused", tasks=[draft], current_task="\u202e", doing="\u202e")}))
    (crew,) = crews(page)
    line = drawn(page, "draw(Line({ crew: crews[0] }))")

    assert crew["href"].startswith(f"http://{HOST}:")
    assert crew["href"].endswith(end)
    assert (line.count("<a"), "\u202e" in line) == (1, False)
    assert "evil.example" in line  # as a text


def test_next_attempt_shows_nothing_of_the_one_before(page):
    watch(page, world([instance("run-1", "failed")], {"run-1": FAILED}), in_view=0)
    page.evaluate("watched.note(told.rows[0].key, true)")
    after(page, 1)
    assert crews(page)[0]["told"]["title"] == "Failed"

    page.evaluate("watched.note(told.rows[0].key, false)")
    page.evaluate("Object.assign(world.instances[0], { state: 'running', try_number: 2 })")
    after(page, 15)
    assert (crews(page)[0]["group"], crews(page)[0]["told"]) == ("running", None)


@pytest.mark.parametrize("status", [429, 500])
def test_row_whose_details_fail_shows_no_cost_and_is_read_again(page, status):
    refused = {"run-1/taskInstances/write/xcomEntries/crew_progress": status}
    watch(page, world([instance("run-1", "failed"), instance("run-2")], {"run-1": FAILED}, refused=refused), 0)
    assert {crew["run"]: crew["told"] is None for crew in crews(page)} == {"run-1": True, "run-2": False}
    assert most_in_a_minute(after(page, 90)) <= 40

    page.evaluate("world.refused = {}")
    after(page, 15)
    assert {crew["run"]: crew["told"].get("end") and crew["told"]["end"]["cost"] for crew in crews(page)} == {
        "run-1": COST,
        "run-2": None,
    }
