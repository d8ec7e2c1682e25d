"""The question of a crew in the Crew tab: when it can be answered, and what an answer sends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dev.chromium import EXECUTABLE, Page
from tests.integration.tab_page import tab_page
from tests.integration.test_tab_contents import element_types, told, with_airflow
from tests.system.crew_tab_contents import ATTACKS, KICKOFF_ID, progress

pytestmark = [
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
]

TASK = {"dagId": "dag", "runId": "run", "taskId": "task", "mapIndex": "-1"}
AT = "2026-11-27T14:12:32.827000"
SENT: dict[str, Any] = {"option": "Send back", "user": "Ada", "at": f"{AT}+00:00", "outcome": "sent", "why": ""}
GIVEN: dict[str, Any] = {
    "response_received": True,
    "chosen_options": ["Approve"],
    "responded_at": "2026-11-27T15:00:00Z",
    "responded_by_user": {"id": "2", "name": "Ben"},
}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with tab_page() as opened:
        yield opened


def question(task_id: str, draft: str = "# Ferries") -> dict[str, Any]:
    return {"task_id": task_id, "draft": draft}


def record(task_id: str = "q-1", *answers: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return the record of a question in the task state store."""
    known = {"kickoff_id": KICKOFF_ID, "question": question(task_id), "number": 1, "outcome": ""}
    return {**known, "answers": [*answers], **others}


def request(task_id: str = "q-1", **others: Any) -> dict[str, Any]:
    """Return a request under Required Actions, as Airflow shows it."""
    params = {"question": {"value": task_id}, "text": {"value": None}}
    return {"response_received": False, "params": params, "created_at": f"{AT}Z", "assigned_users": [], **others}


def asked(page: Page, state: str = "deferred", since: float = 0.0, **seen: Any) -> dict[str, Any]:
    """Return the contents of the tab for a task whose crew has asked."""
    known = progress(state="paused", since=since)
    return told(page, state, **{"crew_progress": known, "crew_question": {"question": question("q-1")}} | seen)


def test_open_question_shows_its_own_draft(page):
    shown = asked(page, answered=record(number=3), request=request())
    form = shown["question"]["form"]

    assert (form["id"], form["title"], form["draft"]) == ("q-1", "Draft 3", "# Ferries")
    assert shown["title"] == "Waiting for human input"
    assert not shown["waiting"]["draft"]
    assert not shown["waiting"]["isElsewhere"]
    assert shown["waiting"]["since"] == form["openedAt"]


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("queued", {"answered": record(), "request": request()}),
        ("deferred", {"answered": record(), "request": request("q-2")}),
        ("deferred", {"answered": record("q-2"), "request": request()}),
        ("deferred", {"answered": record(), "request": request(**GIVEN)}),
        ("deferred", {"answered": record(), "request": request(params={})}),
        ("deferred", {"answered": record(question="x"), "request": request()}),
        ("deferred", {"answered": record(question={"draft": "x"}), "request": request(params={})}),
        ("deferred", {"answered": record()}),
        ("deferred", {"request": request()}),
        ("failed", {"answered": record(), "request": request()}),
    ],
)
def test_no_form_without_an_open_request_and_its_draft(page, state, seen):
    assert asked(page, state, **seen)["question"]["form"] is None


@pytest.mark.parametrize("asks", [True, False])
def test_request_is_read_only_for_a_task_that_is_answered_here(page, asks):
    answers: dict[str, Any] = {
        "/taskInstances/task": {"state": "deferred", "try_number": 1, "end_date": None},
        "/tasks/task": {"template_fields": ["crew_conn_id"]},
        "/xcomEntries": {"xcom_entries": [{"key": "crew_question", "timestamp": "now"}][: int(asks)]},
        "/xcomEntries/crew_question": {"value": {"known": [], "try_number": 1}},
        "/state-store": {"task_state_store": [{"key": "crew_answer", "value": json.dumps(record())}]},
        "/hitlDetails": {"hitl_details": [request()]},
    }
    first = (
        f"new Promise((seen) => {{ const stop = watch({json.dumps(TASK)}, (news) => (stop(), seen(news.seen))) }})"
    )
    seen = with_airflow(page, answers, f"async ({{ watch }}) => ({{ ...(await {first}), asked }})")

    assert seen["task"] == TASK  # which the answer is for, while the page may already be about another
    assert (seen.get("answered"), seen.get("request")) == ((record(), request()) if asks else (None, None))
    assert any("hitlDetails?task_id=task&map_index=-1" in url for url in seen["asked"]) is asks


def test_task_without_answers_links_to_the_dashboard(page):
    shown = told(page, "deferred", crew_progress=progress(state="paused"), request=request(), answered=record())

    assert shown["question"] is None
    assert shown["waiting"]["isElsewhere"]


@pytest.mark.parametrize(
    ("state", "seen", "title"),
    [
        ("queued", {"answered": record(), "request": request(**GIVEN)}, "Answered"),
        ("deferred", {"answered": record("q-1", SENT, outcome="sent")}, "Answered"),
        ("deferred", {"answered": record("q-1", SENT, outcome="uncertain")}, "Answered"),
        ("deferred", {"answered": record("q-1", SENT, outcome="sent"), "since": 2e9}, "Waiting for human input"),
        ("deferred", {"answered": record("q-1", SENT, outcome="sent", is_over=True)}, "Waiting for human input"),
        ("deferred", {"answered": record(), "request": request(), "since": 2e9}, "Waiting for human input"),
        ("up_for_retry", {"answered": record(), "request": request()}, "Waiting for retry"),
        ("up_for_retry", {"answered": record(), "request": request(**GIVEN)}, "Waiting for retry"),
        ("success", {"answered": record(), "request": request(**GIVEN)}, "Stopped waiting"),
    ],
)
def test_badge_follows_the_answer(page, state, seen, title):
    assert asked(page, state, hasEnded=state == "success", **seen)["title"] == title


@pytest.mark.parametrize(
    ("state", "known"), [("deferred", record("q-0")), ("queued", record()), ("running", None)]
)
def test_question_whose_request_is_not_open_yet_is_announced(page, state, known):
    shown = asked(page, state, answered=known)

    assert (shown["question"]["isComing"], shown["question"]["form"]) == (True, None)
    assert (shown["title"], shown["waiting"]["isElsewhere"]) == ("Waiting for human input", False)


def test_answer_that_the_task_has_not_read_yet_is_listed_once(page):
    known = record("q-1", SENT, outcome="sent")
    again = {"responded_at": f"{AT}Z", "chosen_options": ["Send back"], "responded_by_user": {"name": "Ada"}}
    both = asked(page, "running", answered=known, request=request(**GIVEN))["question"]["answers"]
    one = asked(page, "running", answered=known, request=request(**GIVEN | again))["question"]["answers"]

    assert [(each["user"], each["outcome"]) for each in both] == [("Ada", "sent"), ("Ben", "")]
    assert [each["user"] for each in one] == ["Ada"]


def test_answers_of_an_earlier_execution_are_not_shown(page):
    known = record("q-1", SENT, outcome="sent", kickoff_id="another")
    given = request(**GIVEN)  # Airflow has kept it
    for answered in (known, known | {"answers": []}, None):
        shown = asked(page, answered=answered, request=given, crew_question={"known": []})

        assert shown["question"]["answers"] == []
        assert shown["title"] == "Waiting for human input"


@pytest.mark.parametrize(("state", "outcome"), [("running", "sending"), ("failed", "uncertain")])
def test_answer_of_a_killed_process_is_uncertain(page, state, outcome):
    known = record("q-1", SENT | {"outcome": "sending"}, outcome="sending")

    assert [each["outcome"] for each in asked(page, state, answered=known)["question"]["answers"]] == [outcome]


def test_answer_of_a_user_without_a_name_is_not_automatic(page):
    given = request(**GIVEN | {"responded_by_user": {"id": "2", "name": ""}})

    assert [
        each["user"] for each in asked(page, "queued", answered=record(), request=given)["question"]["answers"]
    ] == ["a user"]


def drawn(page: Page, of: dict[str, Any]) -> str:
    return page.evaluate(
        'import("/question.js").then(({ Question }) => draw(Question({ of: '
        f"{json.dumps(of)}, task: {json.dumps(TASK)} }})))"
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SENT, "Ada sent the draft back. Delivered."),
        (
            SENT | {"option": "Approve", "user": "", "outcome": "uncertain"},
            "After the time limit, Airflow approved",
        ),
        (SENT | {"outcome": "rejected", "why": "It is full (429)."}, "No effect. It is full (429)."),
        (SENT | {"option": "constructor", "outcome": "constructor"}, "Ada chose constructor. constructor"),
    ],
)
def test_each_answer_has_its_author_and_its_outcome(page, answer, words):
    assert words in drawn(page, asked(page, answered=record("q-1", answer))["question"])


def test_time_limit_and_assigned_users_are_shown(page):
    known = record(answer_by=time.time() + 3600, at_timeout="Airflow approves the draft")
    users = [{"id": "1", "name": "Ada"}, {"id": "2", "name": "Ben"}]
    shown = drawn(page, asked(page, answered=known, request=request(assigned_users=users))["question"])
    late = drawn(page, asked(page, answered=known | {"answer_by": 5}, request=request())["question"])

    assert "<span>1h 00m</span>, Airflow approves the draft." in shown
    assert "Ada, Ben" in shown
    assert "Airflow approves" not in late


def test_long_draft_is_folded(page):
    known = record(question=question("q-1", "line\n" * 30))

    assert "Show the whole draft" in drawn(page, asked(page, answered=known, request=request())["question"])
    assert "Show the whole" not in drawn(page, asked(page, answered=record(), request=request())["question"])


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_question_becomes_no_element(page, attack):
    answer = {"option": attack, "user": attack, "at": attack, "outcome": attack, "why": attack}
    known = record("q-1", answer, question=question(attack, attack), at_timeout=attack, answer_by=1e10)
    seen = request(attack, assigned_users=[{"name": attack}])
    of = asked(page, answered=known, request=seen, crew_question={"question": question(attack)})["question"]
    assert of["form"]["draft"] == attack
    element = f'(await import("/question.js")).Question({{ of: {json.dumps(of)}, task: {json.dumps(TASK)} }})'

    assert element_types(page, element) <= {
        *("section", "h2", "dl", "dt", "dd", "label", "textarea", "button", "details", "summary"),
        *("div", "p", "a", "span", "code", "pre", "strong", "em", "del", "br", "ul", "ol", "li", "blockquote"),
        *("h4", "hr", "table", "thead", "tbody", "tr", "th", "td"),
    }


# Answers each request with a status, and presses a button of the form twice before anything can be drawn again.
TWICE = """(async () => {
    const { Question } = await import("/question.js");
    const [sent, notes, found, focused] = [[], [], [], []];
    globalThis.noted = (state) => notes.push(state);
    globalThis.fetch = async (url, { method, body }) => {
        sent.push([method, new URL(url).pathname, JSON.parse(body)]);
        return { ok: %(status)s < 300, status: %(status)s, json: async () => ({ detail: "<b>" }) };
    };
    const visit = (node) => {
        if (Array.isArray(node)) node.forEach(visit);
        else if (typeof node?.type === "function") visit(node.type(node.props));
        else if (node?.type === "button") found.push(node);
        else if (node?.type) visit(node.props.children);
        if (node?.props?.ref) node.props.ref.current = { focus: () => focused.push(node.props.role) };
    };
    visit(Question({ of: %(of)s, task: %(task)s }));
    const pressed = found.find((each) => each.props.children === %(label)s);
    await Promise.all([pressed.props.onClick(), pressed.props.onClick()]);
    return { sent, notes, focused };
})()"""


def pressed_twice(page: Page, label: str, status: int) -> dict[str, Any]:
    of = asked(page, answered=record(), request=request(assigned_users=[{"name": "Ada"}]))["question"]
    parts = {"of": of, "task": TASK, "label": label}
    return page.evaluate(TWICE % {"status": status, **{name: json.dumps(each) for name, each in parts.items()}})


def test_double_click_sends_one_answer_with_its_question(page):
    done = pressed_twice(page, "Send back", 200)

    assert [(method, path.partition("/dags/")[2]) for method, path, _ in done["sent"]] == [
        ("PATCH", "dag/dagRuns/run/taskInstances/task/-1/hitlDetails")
    ]
    assert done["sent"][0][2] == {
        "chosen_options": ["Send back"],
        "params_input": {"question": "q-1", "text": None},
    }


@pytest.mark.parametrize(
    ("status", "words"), [(403, "Ada"), (404, "no longer"), (409, "was not sent"), (408, "again"), (500, "again")]
)
def test_rejected_answer_tells_why(page, status, words):
    done = pressed_twice(page, "Approve", status)

    assert len(done["sent"]) == 1
    assert done["focused"] == ["status"]
    assert any(words in note for note in done["notes"] if isinstance(note, str))


def test_question_costs_no_more_requests_than_a_minute_has_seconds(page):
    answers: dict[str, Any] = {
        "/taskInstances/task": {"state": "deferred", "try_number": 1, "end_date": None},
        "/tasks/task": {"template_fields": ["crew_conn_id"]},
        "/xcomEntries": {
            "xcom_entries": [{"key": key, "timestamp": "now"} for key in ("crew_question", "crew_progress")]
        },
        "/xcomEntries/crew_question": {"value": {"known": [], "try_number": 1}},
        "/xcomEntries/crew_progress": {"value": progress(state="paused")},
        "/state-store": {"task_state_store": [{"key": "crew_answer", "value": json.dumps(record())}]},
        "/hitlDetails": {"hitl_details": [request()]},
    }
    # Without waiting: each pause is noted, and over at once.
    looked = """async ({ watch }) => {
        const [real, pauses] = [globalThis.setTimeout, []];
        globalThis.setTimeout = (run, ms) => pauses.push(ms) < 11 && real(run);
        const stop = watch(%s, () => {});
        while (pauses.length < 11) await new Promise((then) => real(then));
        stop();
        globalThis.setTimeout = real;
        return { pauses, asked };
    }"""
    seen = with_airflow(page, answers, looked % json.dumps(TASK))

    assert len(seen["asked"]) <= sum(seen["pauses"]) / 1_000 + 3
