"""
What the Crew tab reads, and what it shows of each state of a task and of each construct of Markdown.

The states are in ``tab_states.json``.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.chromium import Page
from tests.integration.tab_values import FILE, NOW, made, mismatches
from tests.system.crew_tab_contents import ATTACKS, KICKOFF_ID, progress

pytest_plugins = ["tests.integration.tab_page"]

# The time stands still, unless a test lets it pass.
SCRIPTS = [Path(__file__).with_name(name).read_text() for name in ("crews_world.js", "tab_contents.js")]
ROWS = [
    pytest.param(*row, id=f"{title} {number}")
    for title, rows in FILE["states"].items()
    for number, row in enumerate(rows, start=1)
]
TASK = {"dagId": "dag", "runId": "run", "taskId": "task", "mapIndex": "-1"}


@pytest.fixture(scope="module")
def page(page: Page) -> Page:
    for script in SCRIPTS:
        page.evaluate(script)
    return page


def tab(page: Page, expression: str, *given: Any) -> Any:
    """Return what a function makes of these values, with the modules of the tab."""
    return page.evaluate(f"({expression})({', '.join(map(json.dumps, given))})")


def told(page: Page, **seen: Any) -> dict[str, Any]:
    """Return the contents of the tab for a task in this state."""
    known = {"tryNumber": 1, "isSensor": False, "retryAt": None, **seen}
    return tab(page, f"(seen) => {{ Date.now = () => {1000 * NOW}; return shown(seen); }}", known)


@pytest.mark.parametrize(("seen", "wanted"), ROWS)
def test_tab_shows_the_state(page, seen, wanted):
    shown = told(page, **made(seen))
    text, lacks = wanted.pop("text", []), wanted.pop("lacks", [])

    assert mismatches(shown, wanted) == []
    assert [each for each in text if each not in shown["text"]] == []
    assert [each for each in lacks if each in shown["text"]] == []
    assert "choices" not in wanted or [*shown["choices"]] == [*wanted["choices"]]


@pytest.mark.parametrize("value", FILE["malformed"])
def test_malformed_value_breaks_no_state(page, value):
    for state in (None, "deferred", "failed", "up_for_retry", "success", "constructor"):
        assert told(page, state=state, crew_progress=value, return_value=value if state == "success" else None)[
            "title"
        ]


@pytest.mark.parametrize(("source", "elements"), FILE["markdown"])
def test_markdown_becomes_elements(page, source, elements):
    assert tab(page, "(source) => draw(Markdown({ source }))", source) == f"<div>{elements}</div>"


MARKDOWN = {
    *("div", "p", "a", "span", "code", "pre", "strong", "em", "del", "br", "ul", "ol", "li", "blockquote"),
    *("h3", "hr", "table", "thead", "tbody", "tr", "th", "td"),
}
FORM = {"section", "h2", "dl", "dt", "dd", "label", "textarea", "button", "details", "summary"}


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_becomes_no_element_of_its_own(page, attack):
    answer = {"option": attack, "user": attack, "at": attack, "outcome": attack, "why": attack}
    kept = {"kickoff_id": KICKOFF_ID, "task_id": attack, "draft": attack, "answers": [answer]}
    request = made(
        {"like": "request", "params": {"question": {"value": attack}}, "assigned_users": [{"name": attack}]}
    )
    question = {"answered": kept | {"at_timeout": attack, "answer_by": 1e10}, "request": request}
    of = told(page, state="deferred", **made({"like": "a question"}) | question)["question"]
    assert of["form"]["draft"] == attack

    drawn = "(of, task, source) => [types(Markdown({ source })), types(Question({ of, task }))]"
    markdown, form = tab(page, drawn, of, TASK, attack)

    links = tab(
        page, "(source) => elements(Markdown({ source })).map(({ props }) => props.href ?? 'http:')", attack
    )
    assert {urlsplit(link).scheme for link in links} <= {"http", "https"}
    assert set(markdown) <= MARKDOWN
    assert set(form) <= MARKDOWN | FORM


def with_airflow(page: Page, answers: dict[str, Any], expression: str, task: dict[str, Any] = TASK) -> Any:
    """Return what an expression about a task is in an Airflow with these answers."""
    begin = "Object.assign(globalThis, { responses, asked: [], fetch: ask })"
    return tab(page, f"async (responses, task) => {{ {begin}; return {expression}; }}", answers, task)


def answers_about(state: str, xcoms: dict[str, Any], *, end: str | None = None, **kept: Any) -> dict[str, Any]:
    """Return what Airflow answers about a task with these XComs, and with this in its task state store."""
    task = {"template_fields": ["crew_conn_id"], "retry_delay": {"days": 0, "seconds": 300}}
    return {
        "/taskInstances/task": {"state": state, "try_number": 1, "end_date": end},
        "/tasks/task": task,
        "/xcomEntries": {"xcom_entries": [{"key": key, "timestamp": "now"} for key in xcoms]},
        **{f"/xcomEntries/{key}": {"value": value} for key, value in xcoms.items()},
        "/hitlDetails": {"hitl_details": [made({"like": "request"})]},
    } | (
        {"/state-store": {"task_state_store": [{"key": key, "value": kept[key]} for key in kept]}} if kept else {}
    )


def test_earlier_attempts_have_the_executions_in_their_logs(page):
    logs = dict(enumerate(FILE["logs of attempts"], start=1))
    tries = [{"try_number": n, "state": "failed", "start_date": None, "end_date": None} for n in logs]
    answers: dict[str, Any] = {"/tries": {"task_instances": tries}}
    answers |= {
        f"/logs/{n}": {"content": [{"event": line} for line in log]} for n, (log, _) in logs.items() if log
    }

    found = with_airflow(page, answers, "airflow.attempts(task)")

    assert mismatches(found, [attempt for _, attempt in logs.values()]) == []


def test_attempts_are_a_table_with_their_reasons(page):
    error = {"event": "Task failed", "error_detail": [{"exc_value": "out of credit\nCost: billed."}]}
    times = {"start_date": "2026-01-01T00:00:00Z", "end_date": "2026-01-01T00:01:05Z"}
    tries = [{"try_number": n, "state": state, **times} for n, state in ((1, "failed"), (2, "running"))]
    answers = {"/tries": {"task_instances": tries}, "/logs/1": {"content": [error]}, "/logs/2": {"content": []}}

    drawn = "draw(Attempts({ found: await airflow.attempts(task), current: 2, isOpenAtFirst: true }))"
    table = with_airflow(page, answers, drawn)

    assert table.index("<td>2</td><td>running</td>") < table.index(
        "<td>1</td><td>failed</td><td>out of credit</td>"
    )
    assert "<td>1m 05s</td>" in table
    assert "Cost" not in table


@pytest.mark.parametrize(("found", "cost"), FILE["costs of attempts"])
def test_header_has_the_cost_of_all_attempts(page, found, cost):
    assert tab(page, "(found, current) => costOf(found, current)", found, len(found)) == cost


def test_kickoff_record_is_read_after_an_end_without_a_report(page):
    record, end = made({"like": "record"}), "2026-01-01T00:00:00Z"

    for state in ("failed", "running", "success"):
        assert with_airflow(page, answers_about(state, {}, crew_kickoff=record), "first(task)")["record"] == record
    assert with_airflow(page, answers_about("failed", {}, other=7), "first(task)")["record"] is None
    assert "record" not in with_airflow(page, answers_about("failed", {}), "first(task)")
    retried = with_airflow(page, answers_about("up_for_retry", {}, end=end), "first(task)")
    assert retried["retryAt"] == datetime.fromisoformat(end).timestamp() + 300


@pytest.mark.parametrize(
    ("deferral", "end", "is_being_cancelled"),
    [(5.0, None, True), (None, None, False), (15.0, None, False), (5.0, "2026-01-01T00:00:00Z", False)],
)
def test_cancellation_by_a_trigger_is_awaited(page, deferral, end, is_being_cancelled):
    xcoms = {"crew_progress": progress(polled_at=10.0), "crew_deferral": deferral}
    now = f"Date.now = () => {1000 * NOW}"
    ended = end or f"{datetime.fromtimestamp(NOW, UTC):%FT%TZ}"
    seen = with_airflow(page, answers_about("failed", xcoms, end=ended), f"({now}, first(task))")

    assert seen["isBeingCancelled"] is is_being_cancelled


def test_each_request_about_an_iteration_names_it(page):
    answers = answers_about("failed", {"kickoff_id": KICKOFF_ID})
    answers["/tries"] = {
        "task_instances": [{"try_number": 1, "state": "failed", "start_date": None, "end_date": None}]
    }
    read = "(await first(task), await airflow.attempts(task), asked)"
    asked = with_airflow(page, answers, read, TASK | {"regionId": "a-region", "regionIndex": 1})

    named = [url for url in asked if "region_id=a-region" in url and "region_index=1" in url]
    assert [url for url in asked if url not in named] == [url for url in asked if "/tasks/task" in url]
    ends = ("/taskInstances/task", "/xcomEntries", "/xcomEntries/kickoff_id", "/state-store", "/tries", "/logs/1")
    assert {urlsplit(url).path.rpartition(end)[1] for url in named for end in ends} >= {*ends}


ASKED = {"crew_question": {"known": [], "try_number": 1}, "crew_progress": progress(state="paused")}


@pytest.mark.parametrize("asks", [True, False])
def test_request_is_read_only_for_a_task_that_is_answered_here(page, asks):
    kept = made({"like": "question"})
    answers = answers_about("deferred", ASKED if asks else {}, crew_answer=json.dumps(kept))

    seen, asked = with_airflow(page, answers, "[await first(task), asked]")

    assert seen["task"] == TASK  # which the answer is for, while the page may already be about another
    assert (seen.get("answered"), seen.get("request")) == (
        (kept, made({"like": "request"})) if asks else (None, None)
    )
    assert any("hitlDetails?task_id=task&map_index=-1" in url for url in asked) is asks


def test_hidden_or_finished_tab_reads_nothing_more(page):
    shown, hidden, again = with_airflow(page, answers_about("running", ASKED), "watched(task)")
    assert hidden == [0, 0]
    assert min(*shown, *again) > 10
    (_, reads), *later = with_airflow(page, answers_about("success", {"kickoff_id": KICKOFF_ID}), "watched(task)")
    assert [reads, *(reads for _, reads in later)] == [2, 0, 0]


def test_change_during_an_outage_is_read_later(page):
    answers = answers_about("deferred", {"crew_progress": progress()})
    call = f"afterOutage(task, '/xcomEntries/crew_progress', 'later', {json.dumps(progress(completed=2))})"
    away = (
        "globalThis.fetch = async (url) => { const got = await ask(url); return got.ok ? got : { status: 503 }; }"
    )
    seen = with_airflow(page, answers, f"({away}, {call})")
    assert seen["crew_progress"]["completed"] == 2


def test_quiet_tab_sends_thirty_requests_a_minute(page):
    answers = answers_about("deferred", ASKED, crew_answer=json.dumps(made({"like": "question"})))
    with_airflow(page, answers, "watched(task)")
    _, _, again = with_airflow(page, answers, "watched(task)")
    assert again[0] <= 30 + len(ASKED) + 4  # the first look reads the rest


def test_text_for_a_question_that_is_answered_elsewhere_stays(page):
    states = ["q-1", None, "Use short sentences.", False, ""]
    of: dict[str, Any] = {"form": None, "answers": [], "isComing": False}
    drawn = "(states, of) => ((globalThis.states = states), draw(Question({ of, task: {} })))"

    shown = tab(page, drawn, states, of)

    assert "answered or closed before you sent your text" in shown
    assert "<pre>Use short sentences.</pre>" in shown


def pressed_twice(page: Page, label: str, status: int) -> dict[str, Any]:
    request = {"like": "request", "assigned_users": [{"name": "Ada"}]}
    seen = made({"like": "a question", "answered": {"like": "question"}, "request": request})
    of = told(page, state="deferred", **seen)["question"]
    return tab(page, "(...given) => twice(Question, ...given)", {"of": of, "task": TASK}, label, [status])


def test_double_click_sends_one_answer_with_its_question(page):
    ((method, path, body),) = pressed_twice(page, "Send back", 200)["sent"]

    assert method == "PATCH"
    assert path.endswith("/dags/dag/dagRuns/run/taskInstances/task/-1/hitlDetails")
    assert body == {"chosen_options": ["Send back"], "params_input": {"question": "q-1", "text": None}}


@pytest.mark.parametrize(
    ("status", "words"), [(403, "Ada"), (404, "no longer"), (409, "was not sent"), (408, "again"), (500, "again")]
)
def test_rejected_answer_tells_why(page, status, words):
    done = pressed_twice(page, "Approve", status)

    assert len(done["sent"]) == 1
    assert done["focused"] == ["status"]
    assert any(words in note for note in done["notes"] if isinstance(note, str))


MAPPED = [TASK | {"mapIndex": index} for index in range(2)]
CLEARED = {"dry_run": False, "only_failed": True, "include_downstream": True, "reset_dag_runs": True}


def cleared(page: Page, tasks: list[dict[str, Any]], *statuses: int, asks: bool = False) -> dict[str, Any]:
    """Press the button that asks, or the one that clears after it has found tasks."""
    given = {"tasks": tasks, "price": "It starts another execution (billed).", "label": "Clear"}
    pressed = ("Clear", [None]) if asks else (f"Clear {len(tasks)} task{'s' * (len(tasks) > 1)}", [len(tasks)])
    button, states = pressed
    return tab(page, "(...given) => twice(Clear, ...given)", given, button, statuses, states)


def test_double_click_clears_once(page):
    ((method, path, body),) = cleared(page, [TASK], 200)["sent"]
    assert (method, path.endswith("/dags/dag/clearTaskInstances")) == ("POST", True)
    assert body == CLEARED | {"dag_run_id": "run", "task_ids": ["task"], "keep_task_state": True}


def test_tasks_of_one_run_are_cleared_together(page):
    other = TASK | {"runId": "another"}
    bodies = [body for _, _, body in cleared(page, [*MAPPED, other], 200)["sent"]]
    assert [each["task_ids"] for each in bodies] == [[["task", 0], ["task", 1]], ["task"]]


def test_airflow_without_the_option_keeps_task_state_anyway(page):
    first, second = (body for _, _, body in cleared(page, [TASK], 422, 200)["sent"])
    assert first == second | {"keep_task_state": True}


def test_clearing_asks_airflow_first_which_changes_nothing(page):
    done = cleared(page, [TASK], 200, asks=True)
    assert [body["dry_run"] for _, _, body in done["sent"]] == [True]
    assert 2 in done["notes"]  # the tasks that Airflow would clear


@pytest.mark.parametrize(("status", "words"), [(403, "no permission"), (404, "404"), (500, "not confirmed")])
@pytest.mark.parametrize("asks", [True, False])
def test_refused_clearing_tells_why(page, asks, status, words):
    done = cleared(page, [TASK], status, asks=asks)
    assert len(done["sent"]) == 1
    assert any(words in note for note in done["notes"] if isinstance(note, str))


# More levels than JavaScript can write as JSON, and more cells than a browser draws at once.
BRACKETS = "[" * 20_000 + "]" * 20_000
CELLS = "a|" * 50 + "\n" + "-|" * 50 + "\n" + "|\n" * 4_800


@pytest.mark.parametrize(
    ("source", "shown"), [(BRACKETS, "<details>"), (CELLS, f"<pre>{CELLS[:9_000]}")], ids=["brackets", "cells"]
)
def test_output_of_any_shape_is_shown(page, source, shown):
    assert shown in tab(page, "(source) => draw(Output({ label: 'output', source }))", source)


def test_task_whose_story_fails_is_shown_raw(page):
    fails = "Object.defineProperty(seen, 'usage', { get: () => { throw new Error(); } })"
    seen = {"state": "running", "crew_progress": progress()}

    drawn = tab(page, f"(seen) => ({fails}, draw(Told({{ seen }})))", seen)

    assert drawn.startswith("<pre>")
    assert KICKOFF_ID in drawn


@pytest.mark.timeout(600)
@pytest.mark.parametrize("begin", FILE["beginnings"])
def test_no_text_of_a_crew_freezes_the_tab(page, begin):
    page.call("Performance.enable", timeDomain="threadTicks")
    for repeated in FILE["repeated"]:
        before = computed(page)
        # A quadratic search of 200,000 spaces takes twenty seconds of a processor, and nothing here half a second.
        source = f"begin + each.repeat({200_000 // len(repeated)}) + 'a\u2028b'"
        tab(page, f"(begin, each) => void Markdown({{ source: {source} }})", begin, repeated)
        assert computed(page) - before < 5, repeated


def computed(page: Page) -> float:
    """Return the seconds of a processor that the page's main thread has had."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")
