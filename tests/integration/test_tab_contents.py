"""Contents of the Crew tab for each end of a task and each construct of Markdown, without an Airflow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_provider_crew.client.errors import Cost, ExecutionFailed
from airflow_provider_crew.client.progress import begun, completed
from airflow_provider_crew.client.progress import ended as progress_ended
from airflow_provider_crew.task.verdict import Facts, if_lost, while_waiting
from airflow_provider_crew.versions import KEEPING
from dev.chromium import EXECUTABLE, Page
from tests.integration.tab_page import tab_page
from tests.system.crew_tab_contents import ATTACKS, KICKOFF_ID, batch_progress, hostile_batch, progress, result

pytestmark = [
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
]

NEXT = "Clear the task."


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with tab_page() as opened:
        yield opened


def told(page: Page, state: str | None, **xcoms: Any) -> dict[str, Any]:
    """Return the contents of the tab for a task in this state."""
    seen = {"state": state, "tryNumber": 1, "isSensor": False, "retryAt": None, **xcoms}
    return page.evaluate(f'import("/story.js").then(({{ story }}) => story({json.dumps(seen)}))')


def ended(error: str, cost: Cost, *, event: str = "It ended.", **known: Any) -> dict[str, Any]:
    misfits = known.pop("misfits", None)
    end = {"error": error, "event": event, "cost": cost.value, "billed": cost.sentence, "next_step": NEXT}
    end |= {"if_retried": "starts a new execution, which is billed again"}
    return progress(end=end | ({"misfits": misfits} if misfits else {}), **known)


META = '{"dag_id": "dag"}'
NOTHING_STARTED: dict[str, Any] = {"kickoff_id": "", "state": "none"}
CANCELLED = ended("ExecutionCancelled", Cost.ENDED, state="failed")
SENT: dict[str, Any] = {"kickoff_id": KICKOFF_ID, "end": None, "if_lost": if_lost(KICKOFF_ID, None)}
UNCERTAIN = SENT | {"kickoff_id": None, "if_lost": if_lost(None, None) | {"meta": META}}


@pytest.mark.parametrize(
    ("state", "xcoms", "title", "tone"),
    [
        ("failed", {"crew_progress": ended("InvalidInputs", Cost.NONE, **NOTHING_STARTED)}, "Failed", "bad"),
        (
            "failed",
            {"crew_progress": ended("UncertainKickoff", Cost.UNKNOWN, **NOTHING_STARTED)},
            "Uncertain kickoff",
            "waiting",
        ),
        ("failed", {"crew_progress": ended("WaitedTooLong", Cost.RUNNING)}, "Stopped waiting", "waiting"),
        ("up_for_retry", {"crew_progress": ended("ExecutionFailed", Cost.ENDED)}, "Waiting for retry", "waiting"),
        ("failed", {"kickoff_id": KICKOFF_ID, "record": SENT}, "Stopped waiting", "waiting"),
        ("failed", {"record": UNCERTAIN}, "Uncertain kickoff", "waiting"),
        ("failed", {"record": None}, "Failed", "bad"),
        ("success", {"crew_progress": progress()}, "Stopped waiting", "waiting"),
        ("failed", {"crew_progress": CANCELLED}, "Cancelled", "gray"),
        ("success", {"crew_progress": CANCELLED}, "Cancelled", "gray"),
        ("up_for_retry", {"crew_progress": CANCELLED}, "Waiting for retry", "waiting"),
        ("running", {}, "Starting", "active"),
        (None, {}, "Not started yet", "quiet"),
        ("success", {"crew_progress": progress(state="completed")}, "Completed", "good"),
        ("deferred", {"crew_progress": progress(state="paused")}, "Waiting for human input", "waiting"),
        ("deferred", {"crew_progress": progress(state="unknown")}, "May be waiting for human input", "waiting"),
        ("deferred", {"crew_progress": progress()}, "Running", "active"),
    ],
)
def test_badge_names_the_state_of_crew_and_task(page, state, xcoms, title, tone):
    shown = told(page, state, **xcoms)

    assert (shown["title"], shown["tone"]) == (title, tone)


def test_next_step_of_a_retry_has_its_time_and_its_effect(page):
    at, known = time.time() + 240, ended("ExecutionFailed", Cost.ENDED)
    shown = told(page, "up_for_retry", retryAt=at, crew_progress=known)["end"]

    assert (shown["retryAt"], shown["next"]) == (at, "")
    assert shown["retry"] == known["end"]["if_retried"]
    assert told(page, "failed", crew_progress=known)["end"]["next"] == NEXT


@pytest.mark.parametrize(
    ("facts", "cost"),
    [
        ({"kickoff_id": KICKOFF_ID, "record": SENT}, "billed"),
        ({"isSensor": True}, "billed"),
        ({"record": SENT | {"if_lost": if_lost(KICKOFF_ID, "completed")}}, "billed"),
        ({"record": UNCERTAIN}, "unknown"),
        ({}, "unknown"),
        ({"record": None}, "none"),
    ],
)
def test_killed_process_shows_its_cost_and_next_step(page, facts, cost):
    shown = told(page, "failed", **facts)

    assert shown["end"]["cost"].startswith(cost)
    assert shown["end"]["next"] or dict(shown["choices"])["If you clear the task"]
    assert shown["kickoffId"] == (facts.get("kickoff_id") or (facts.get("record") or {}).get("kickoff_id") or "")


WAITING = while_waiting(Facts(), reattachable=True, cancels=False)["choices"]
CANCELS = while_waiting(Facts(), reattachable=True, cancels=True)["choices"]
CANCELS_LATE = while_waiting(Facts(), reattachable=True, cancels=False, cancels_at_timeout=True)["choices"]
DELIVERED = if_lost(KICKOFF_ID, "delivered")


@pytest.mark.parametrize(
    ("state", "xcoms", "effects"),
    [
        (
            "deferred",
            {"crew_progress": progress(choices=WAITING)},
            {
                "If you clear the task": "same execution, at no further cost",
                "If you mark it as failed": "keeps running and is billed",
                "If you do nothing": "billed once",
            },
        ),
        (
            "failed",
            {"record": SENT},
            {"If you clear the task": "same execution", "If you do nothing": "keeps running and is billed"},
        ),
        (
            "up_for_retry",
            {"record": SENT},
            {"If you clear the task": "same", "If you mark it as failed": "no retry"},
        ),
        (
            "success",
            {"return_value": result(), "record": {"if_lost": DELIVERED}, "crew_progress": progress()},
            {"If you clear the task": "a new execution, which is billed again"},
        ),
        (
            "running",
            {"record": None},
            {
                "If you clear the task": "starts an execution, which is billed",
                "If you mark it as failed": "nothing is billed",
                "If you do nothing": "billed once",
            },
        ),
        (
            "running",
            {"record": UNCERTAIN | {"try_number": 1}},
            {
                "If you clear the task": "reports the uncertain kickoff",
                "If you mark it as failed": "an execution may be running and billed",
                "If you do nothing": "billed once",
            },
        ),
        (
            "running",
            {"record": SENT | {"try_number": 1}, "tryNumber": 2},
            {"If you clear the task": "same execution", "If you do nothing": "same execution"},
        ),
        ("running", {"isOfBatch": True}, {}),
        ("queued", {"crew_progress": progress(choices=WAITING)}, {}),
        ("running", {"crew_progress": progress(choices="x")}, {}),
    ],
)
def test_each_choice_has_its_effect_and_cost(page, state, xcoms, effects):
    ended_at = time.time() - 5
    shown = told(page, state, endedAt=ended_at, hasEnded=state in {"failed", "success"}, **xcoms)
    assert shown["endedAt"] == (ended_at if state in {"failed", "up_for_retry"} else None)
    shown = dict(shown["choices"])

    assert list(shown) == list(effects)
    for choice, effect in effects.items():
        assert effect in shown[choice]


def drawn_header(page: Page, state: str, **xcoms: Any) -> str:
    """Return the header of the tab as elements in one line."""
    seen = {"state": state, "tryNumber": 1, "isSensor": False, "retryAt": None, **xcoms}
    return page.evaluate(
        'Promise.all([import("/story.js"), import("/tab.js")])'
        f".then(([{{ story }}, {{ Header }}]) => draw(Header({{ of: story({json.dumps(seen)}) }})))"
    )


def test_progress_tells_its_age_when_it_is_old(page):
    old = progress(polled_at=time.time() - 75, stale_after=60.0)

    assert "Seen 1m 15s ago" in drawn_header(page, "deferred", crew_progress=old)
    assert "Seen" not in drawn_header(page, "deferred", crew_progress=old | {"stale_after": 100.0})
    assert "Seen" not in drawn_header(page, "failed", crew_progress=old)


def test_killed_worker_shows_since_when(page):
    header = drawn_header(page, "failed", record=SENT, hasEnded=True, endedAt=time.time() - 75)

    assert "<dt>Ended</dt><dd><span><span>1m 15s</span> ago</span></dd>" in header
    assert ("Keep task state" in header) is bool(KEEPING)


def test_uncertain_kickoff_shows_the_meta_and_a_page(page):
    header = drawn_header(page, "failed", record=UNCERTAIN, crew_dashboard="https://app.example/runs/")

    assert "<a href=https://app.example/runs/>" in header
    assert f"<code>{META}</code>" in header


def test_execution_that_was_not_seen_running_has_no_duration(page):
    known = begun(KICKOFF_ID, 1_000.0) | {"polled_at": 1_092.0}
    never, once = (completed({**known, "doing": doing}, result(), 1_092.0) for doing in ("", "task 1 of 2"))
    without = result(execution_time=None)

    assert told(page, "success", crew_progress=never, return_value=without)["took"] is None
    assert told(page, "success", crew_progress=once, return_value=without)["took"] == 92


def test_cancelled_execution_has_no_failed_task(page):
    steps = [step("a", 1, 4), step("b", 4)]
    known = ended("ExecutionCancelled", Cost.ENDED, state="failed", steps=steps, current_task="b", tasks=[])

    assert [state for _, state, _ in rows(told(page, "failed", crew_progress=known))] == ["done", "left"]


def test_failed_crew_shows_its_reason_and_its_place(page):
    at = "task 2 of 2, writing_task (Writer), after 6s"
    error = ExecutionFailed("out of credit", at=at, kickoff_id=KICKOFF_ID)
    known = progress_ended(progress(), error, 1.0)
    header = drawn_header(page, "failed", crew_progress=known)

    assert told(page, "failed", crew_progress=known)["end"]["reason"] == "out of credit"
    assert f"<dt>At</dt><dd>{at}</dd>" in header
    assert header.count(KICKOFF_ID) == drawn_header(page, "running", crew_progress=progress()).count(KICKOFF_ID)


def test_error_of_several_lines_keeps_its_lines(page):
    error = ExecutionFailed("Traceback: x = 402", error="Traceback:\n  x = 402")
    known = progress_ended(progress(), error, 1.0)
    shown = told(page, "failed", crew_progress=known)["end"]
    header = drawn_header(page, "failed", crew_progress=known)

    assert (shown["reason"], shown["lines"]) == ("", "Traceback:\n  x = 402")
    assert "<pre>Traceback:\n  x = 402</pre>" in header
    assert header.count("Traceback") == 1


def test_fields_that_do_not_match_are_listed(page):
    misfits = ["title: Field required", "ports[0].ready: Input should be a valid boolean"]
    event = f"The output does not match output_type: {'; '.join(misfits)}."
    known = ended("InvalidOutput", Cost.ENDED, event=event, misfits=misfits, state="completed")
    shown = told(page, "failed", crew_progress=known, crew_result=result())

    assert shown["end"]["misfits"] == misfits
    assert misfits[0] not in shown["end"]["reason"]
    assert shown["output"] == result()["output"]


def test_waiting_crew_shows_its_draft_and_its_deadline(page):
    draft = {"task_id": "writing_task", "agent": "Writer", "output": "# Draft", "execution_time": None}
    known = progress(state="paused", since=5.0, deadline=9.0, tasks=[*progress()["tasks"], draft], choices=WAITING)
    shown = told(page, "deferred", crew_progress=known)

    assert shown["waiting"] == {
        "place": " at writing_task",
        "since": 5.0,
        "deadline": 9.0,
        "unanswered": WAITING["unanswered"],
        "draft": {"title": "Draft", "output": "# Draft"},
        "isElsewhere": True,
    }
    assert [(row["name"], row["state"]) for row in shown["rows"]][-1] == ("writing_task", "waiting")


def test_task_that_waits_for_a_person_ends_at_its_deadline(page):
    late = {"deadline": time.time() + 3 * 86400 - 60, "choices": CANCELS_LATE}
    paused = drawn_header(page, "deferred", crew_progress=progress(state="paused", **late))
    unknown = drawn_header(page, "deferred", crew_progress=progress(state="unknown", human_input=True, **late))

    assert f"<span>2d 23h</span>, and {CANCELS_LATE['unanswered']}." in paused
    assert "<span>2d 23h</span>, and " in unknown
    assert CANCELS_LATE["unanswered"] not in unknown
    for header in (paused, unknown):
        assert header.count("stops waiting") == 1
        assert CANCELS_LATE["nothing"] not in header


def test_unknown_execution_is_at_no_task_for_certain(page):
    known = {"current_task": "writing_task", "human_input": True}

    paused, unknown = (
        told(page, "deferred", crew_progress=progress(state=state, **known)) for state in ("paused", "unknown")
    )
    assert paused["title"] == unknown["title"]
    assert paused["waiting"]["place"] == " at writing_task"
    assert unknown["waiting"]["place"] == ", last seen at writing_task"


def test_next_step_that_a_choice_repeats_is_left_out(page):
    lost = SENT["if_lost"]
    shown = told(page, "failed", record=SENT, hasEnded=True)

    assert lost["next_step"] == "Clearing the task waits for the same execution, at no further cost." or KEEPING
    assert shown["end"]["next"] == ("" if not KEEPING else lost["next_step"])
    assert dict(shown["choices"])["If you clear the task"]


def test_running_batch_shows_counts_rate_and_time_left(page):
    shown = told(page, "deferred", isOfBatch=True, crew_progress=batch_progress())

    assert (shown["title"], shown["bar"]["value"], shown["bar"]["max"]) == ("Running", 403, 1_000)
    assert dict(shown["batch"]["facts"]) == {
        "succeeded": "388",
        "failed": "11",
        "uncertain": "1",
        "running": "13",
        "waiting": "584",
        "rows a minute": "40",
        "time left": "about 14m 49s",
        "tokens of all rows": "about 3,400,000",
    }
    assert (shown["batch"]["tokens"], shown["batch"]["path"]) == (1_364_000, "s3://bucket/scores/2026-11-26")
    assert shown["batch"]["reasons"] == [
        {"title": "402: out of credit", "rows": 9, "which": "006, 012, 018 …"},
        {"title": "uncertain: No response within 60 s.", "rows": 1, "which": "customer-12"},
    ]
    assert shown["batch"]["more"] == 2
    assert [name for name, _ in shown["choices"]] == [
        *("If you clear the task", "If you mark it as failed", "If you do nothing")
    ]


@pytest.mark.parametrize(
    "of_batch",
    [{"earlier": 395}, {"running": 500}, {"ended": 4, "unread": 0, "running": 4}],
    ids=["ended before", "first rows", "few rows"],
)
def test_unknown_rate_of_a_batch_is_not_shown(page, of_batch):
    shown = told(page, "deferred", isOfBatch=True, crew_progress=batch_progress(of_batch=of_batch))

    assert not {"rows a minute", "time left"} & {name for name, _ in shown["batch"]["facts"]}


@pytest.mark.parametrize("state", ["failed", "up_for_retry"])
def test_killed_batch_shows_the_effect_of_clearing_it(page, state):
    known = batch_progress()
    shown = told(page, state, isOfBatch=True, crew_progress=known, hasEnded=state == "failed")

    assert shown["title"] != "Uncertain kickoff"
    assert shown["end"]["cost"] == known["if_lost"]["billed"]
    assert shown["end"]["retry"] == ("" if state == "failed" else known["if_lost"]["if_retried"])
    assert dict(shown["choices"])["If you clear the task"] == f"{known['if_lost']['choices']['clear']}."


def test_killed_batch_without_progress_may_be_billed(page):
    shown = told(page, "failed", isOfBatch=True, crew_progress=None)

    assert shown["end"]["cost"].startswith("unknown")
    assert shown["batch"] is None


def test_completed_batch_whose_rows_still_run_is_not_green(page):
    known = batch_progress(state="completed", of_batch={"ended": 0, "unread": 0, "failed": 0, "uncertain": 0})
    shown = told(page, "success", isOfBatch=True, hasEnded=True, crew_progress=known, return_value={})

    assert shown["title"] == "No row succeeded"


def test_completed_batch_shows_its_manifest(page):
    manifest = {"request_count": 1_000, "usage": {"total_tokens": 2_000_000}, "result_path": "s3://bucket/scores"}
    known = batch_progress(state="completed", of_batch={"ended": 1_000, "unread": 0, "running": 0, "waiting": 0})
    seen = {"isOfBatch": True, "tryNumber": 2, "hasEnded": True, "crew_progress": known, "return_value": manifest}
    shown = told(page, "success", **seen)

    assert (shown["title"], round(shown["took"]), shown["bar"]) == ("Partly completed", 600, None)
    assert dict(shown["usage"]) == {"total_tokens": 2_000_000}
    assert dict(shown["batch"]["facts"])["succeeded"] == "988"
    assert [name for name, _ in shown["choices"]] == ["If you clear the task"]
    assert shown["attempt"] == 1


@pytest.mark.parametrize(("failed", "tone"), [(0, "good"), (2, "waiting"), (5, "bad")])
def test_batch_is_green_only_if_all_rows_succeeded(page, failed, tone):
    counts = {"total": 5, "ended": 5, "failed": failed, "uncertain": 0, "unread": 0, "running": 0, "waiting": 0}
    known = batch_progress(state="completed", of_batch=counts)
    shown = told(page, "success", isOfBatch=True, hasEnded=True, crew_progress=known, return_value={"counts": {}})

    assert shown["tone"] == tone
    assert dict(shown["batch"]["facts"])["succeeded"] == str(5 - failed)


def test_ended_batch_has_rows_that_were_not_started(page):
    facts = dict(told(page, "failed", isOfBatch=True, crew_progress=batch_progress())["batch"]["facts"])

    assert (facts["not started"], "waiting" in facts) == ("584", False)


def step(name: str, start: float, end: float | None = None) -> dict[str, Any]:
    return {"task_id": name, "agent": "Writer", "number": 0, "started_at": start, "ended_at": end}


def rows(shown: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["name"], row["state"], row["seconds"]) for row in [*shown["rows"], *shown["coming"]]]


def test_failed_task_is_the_one_that_had_not_finished(page):
    steps = [step("a", 1, 4), step("b", 4)]
    known: dict[str, Any] = {"state": "failed", "since": 9, "steps": steps, "current_task": "b"}
    at_b = told(page, "failed", crew_progress=ended("ExecutionFailed", Cost.ENDED, tasks=[], **known))
    tasks = [{"task_id": "b", "agent": "", "output": "B", "execution_time": None}]
    after_b = told(page, "failed", crew_progress=ended("ExecutionFailed", Cost.ENDED, tasks=tasks, **known))

    assert rows(at_b) == [("a", "done", 3), ("b", "failed", 5)]
    assert [state for _, state, _ in rows(after_b)] == ["done", "done", "failed"]


def drawn(page: Page, source: str) -> str:
    """Return Markdown as elements in one line."""
    return (
        page.evaluate(
            f'import("/markdown.js").then(({{ Markdown }}) => draw(Markdown({{ source: {json.dumps(source)} }})))'
        )
        .removeprefix("<div>")
        .removesuffix("</div>")
    )


@pytest.mark.parametrize(
    ("source", "elements"),
    [
        ("a\nb", "<p>a\nb</p>"),
        ("- a\n  - b\n- c", "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>"),
        ("3. a\n\n   b", "<ol start=3><li><p>a</p><p>b</p></li></ol>"),
        (
            "- a\n\n  ```py\n  if b:\n\n      c\n  ```",
            "<ul><li><p>a</p><pre><code>if b:\n\n    c</code></pre></li></ul>",
        ),
        (
            "- [x] a\n- [ ] b",
            "<ul><li><span>☑</span><div><p>a</p></div></li><li><span>☐</span><div><p>b</p></div></li></ul>",
        ),
        ("- a\n1. b", "<ul><li><p>a</p></li></ul><ol start=1><li><p>b</p></li></ol>"),
        ("&lt;b&gt; &#8364;5 &nope;", "<p><b> €5 &nope;</p>"),
        (
            "[a][1] [1] [b]\n\n[1]: https://a.example/x 'T'",
            "<p><a href=https://a.example/x>a</a> <a href=https://a.example/x>1</a> [b]</p>",
        ),
        ("`[1]: https://a.example`", "<p><code>[1]: https://a.example</code></p>"),
        ("<https://a.example/>.", "<p><a href=https://a.example/>https://a.example/</a>.</p>"),
        ("[**a** [b]", "<p>[<strong>a</strong> [b]</p>"),
        ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"),
    ],
)
def test_markdown_becomes_elements(page, source, elements):
    assert drawn(page, source) == elements


@pytest.mark.parametrize(
    ("source", "host"),
    [
        ("[https://bank.example/login](https://evil.example/)", "evil.example"),
        ("[bank.example](https://bank.example.evil.example/)", "bank.example.evil.example"),
        ("https://bank.example@evil.example/", "evil.example"),
        ("[b\u0430nk.example](https://xn--bnk-7cd.example/)", "xn--bnk-7cd.example"),
        ("[r][1]\n\n[1]: https://evil.example", None),
        ("[the report](https://a.example/)", None),
        ("[a.example](https://www.a.example/x)", None),
        ("https://a.example/report.html", None),
    ],
)
def test_link_with_a_misleading_label_shows_its_host(page, source, host):
    shown = drawn(page, source)

    assert ("<span>" in shown) is (host is not None)
    assert host is None or f"<span> ({host})</span>" in shown


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u2060", "\ufeff", "\u00ad", "\u2800", "\U000e0041", "\x1b", "\x9b"]
)
def test_hidden_character_is_visible_and_controls_are_not_copied(page, hidden):
    source, mark = f"a{hidden}b\n\t\r", f"⟨U+{ord(hidden):04X}⟩"
    copied = page.evaluate(f'import("/safe.js").then((safe) => safe.withoutControls({json.dumps(source)}))')

    assert told(page, "deferred", crew_progress=progress(doing=f"a{hidden}b\u200d☑\ufe0f"))["sentence"] == (
        f"a{mark}b\u200d☑\ufe0f"
    )
    assert copied == (source.replace(hidden, "") if hidden in "\x1b\x9b" else source)


def test_direction_characters_are_visible(page):
    shown = told(page, "deferred", crew_progress=progress(current_task="\u202egnp.exe", steps=[]))

    assert shown["rows"][-1]["name"] == "⟨U+202E⟩gnp.exe"
    assert "\u202e" not in drawn(page, "&#8238;gnp.exe")


@pytest.mark.parametrize("state", [None, "deferred", "failed", "up_for_retry", "success", "constructor"])
@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, "text", []),
        *(
            {"steps": [7, None, "x"]},
            {"tasks": {}},
            {"tasks": [None]},
            {"end": "x"},
            {"total": "9", "completed": -1},
            {"batch": "x"},
            {"batch": {"total": "9", "ended": None, "reasons": [None, 7], "result_path": {}}},
        ),
        {"end": {"misfits": [None], "cost": "constructor", "event": []}, "state": "__proto__"},
        {"state": "paused", "since": "x", "deadline": {}, "tasks": [{"output": 7}], "current_task": ["a"]},
    ],
)
def test_malformed_value_breaks_no_state(page, state, value):
    shown = told(page, state, crew_progress=value, return_value=value if state == "success" else None)

    assert shown["title"]


def element_types(page: Page, element: str) -> set[str]:
    """Return the types of all elements of what an expression draws."""
    return set(
        page.evaluate(
            f"""(async () => {{
            const found = new Set();
            const visit = (node) => {{
                if (Array.isArray(node)) node.forEach(visit);
                else if (typeof node?.type === "function") visit(node.type(node.props));
                else if (node?.type) found.add(node.type) && visit(node.props.children);
            }};
            visit({element});
            return [...found];
        }})()"""
        )
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_becomes_no_element_of_its_own(page, attack):
    elements = element_types(page, f'(await import("/markdown.js")).Markdown({{ source: {json.dumps(attack)} }})')

    assert elements <= {
        *("div", "p", "a", "span", "code", "pre", "strong", "em", "del", "br", "ul", "ol", "li", "blockquote"),
        *("h4", "hr", "table", "thead", "tbody", "tr", "th", "td"),
    }


@pytest.mark.parametrize("reason", hostile_batch()["batch"]["reasons"])
def test_hostile_reason_of_a_batch_becomes_no_element(page, reason):
    known = batch_progress(of_batch={"reasons": [reason], "result_path": ATTACKS[0]})
    seen = {"state": "deferred", "tryNumber": 1, "isOfBatch": True, "crew_progress": known}
    batch = f'(await import("/story.js")).story({json.dumps(seen)}).batch'
    elements = element_types(page, f'(await import("/batch.js")).Results({{ of: {batch} }})')

    assert elements == {"div", "p", "span", "code", "button", "ul", "li"}


def output(page: Page, **properties: Any) -> str:
    properties = {"label": "output", **properties}
    return page.evaluate(f'import("/output.js").then(({{ Output }}) => draw(Output({json.dumps(properties)})))')


def test_long_output_is_cut_at_a_line(page):
    line = "See [the report](https://a.example/x) for more.\n"
    shown = output(page, source=line * 400)

    assert 150 < shown.count("<a href=https://a.example/x>the report</a>") < 400
    assert "](https" not in shown
    assert "Show all" in shown


TASK = {"dagId": "dag", "runId": "run", "taskId": "task", "mapIndex": "-1"}
# An Airflow whose answers are given by the end of the path. Any other path is not found.
AIRFLOW = """
globalThis.asked = [];
globalThis.fetch = async (url) => {
    asked.push(String(url));
    const answers = %s;
    const path = Object.keys(answers).find((end) => new URL(url).pathname.endsWith(end));
    return path ? { ok: true, json: async () => answers[path] } : { ok: false, status: 404 };
};
"""


def with_airflow(page: Page, answers: dict[str, Any], expression: str) -> Any:
    return page.evaluate(f"{AIRFLOW % json.dumps(answers)} import('/airflow.js').then({expression})")


def test_earlier_attempts_have_the_executions_in_their_logs(page):
    tries = [
        {"try_number": number, "state": "failed", "start_date": None, "end_date": None}
        for number in (1, 2, 3, 4, 5)
    ]
    first = ["Started execution a-1.", "Crew: task 2 of 3, writing_task", "| Started execution evil."]
    first += [
        "Crew: task 3 of 3, review_task, took 5s",
        "Crew: total: 8s, 3,410 tokens",
        "| Crew: total: 7 tokens",
    ]
    answers = {
        "/tries": {"task_instances": tries},
        "/logs/1": {"content": [{"event": line} for line in first]},
        "/logs/2": {"content": ["Reattached to execution a-1, which an earlier attempt started."]},
        "/logs/4": {"content": ["Sending the kickoff. If no line follows, an execution may have started."]},
        "/logs/5": {"content": ["Sending the kickoff. …", "Started execution b, as its crew has called."]},
    }
    found = with_airflow(page, answers, f"(airflow) => airflow.attempts({json.dumps(TASK)})")

    assert [each["executions"] for each in found] == [
        [{"id": "a-1", "isStarted": True}],
        [{"id": "a-1", "isStarted": False}],
        None,
        [],
        [{"id": "b", "isStarted": True}],
    ]
    assert [each.get("isUncertain", False) for each in found] == [False, False, False, True, False]
    assert [each.get("tokens") for each in found] == [[["a-1", 3410]], [], [], [], []]
    assert [each["place"] for each in found] == ["task 2 of 3, writing_task", "", "", "", ""]


@pytest.mark.parametrize(
    ("found", "cost"),
    [
        ([[["a", True]], [["a", False]], [["b", True]]], "2 executions, 30 tokens"),
        ([[["a", True]], None], "at least 1 execution, at least 10 tokens"),
        ([[["a", True]], "uncertain"], "at least 1 execution, at least 10 tokens"),
        ([[["b", True]], [["c", True]]], "2 executions, at least 20 tokens"),
        ([[["a", False]], []], ""),
        (None, ""),
    ],
)
def test_header_has_the_cost_of_all_attempts(page, found, cost):
    spent = {"a": 10, "b": 20}
    attempts = found and [
        {
            "number": number,
            "executions": each and [{"id": name, "isStarted": is_started} for name, is_started in each],
            "isUncertain": is_uncertain,
            "tokens": [[name, spent[name]] for name, _ in each or () if name in spent],
        }
        for number, (each, is_uncertain) in enumerate(
            (([], True) if each == "uncertain" else (each, False) for each in found), start=1
        )
    ]
    given = json.dumps(attempts) if found else "undefined"
    expression = f'import("/attempts.js").then(({{ costOf }}) => costOf({given}, {len(found or [])}))'

    assert page.evaluate(expression) == cost


def seen_by(page: Page, state: str, answers: dict[str, Any]) -> dict[str, Any]:
    """Return what the tab reads about a task without XComs."""
    instance = {"state": state, "try_number": 1, "end_date": "2026-01-01T00:00:00Z"}
    answers |= {"/taskInstances/task": instance, "/xcomEntries": {"xcom_entries": []}}
    answers |= {"/tasks/task": {"template_fields": ["crew_conn_id"], "retry_delay": {"days": 0, "seconds": 300}}}
    first = (
        f"new Promise((seen) => {{ const stop = watch({json.dumps(TASK)}, (news) => (stop(), seen(news.seen))) }})"
    )
    return with_airflow(page, answers, f"({{ watch }}) => {first}")


def test_kickoff_record_is_read_after_an_end_without_a_report(page):
    kept = {"task_state_store": [{"key": "crew_kickoff", "value": SENT}]}

    assert seen_by(page, "failed", {"/state-store": kept})["record"] == SENT
    assert seen_by(page, "failed", {"/state-store": {"task_state_store": []}})["record"] is None
    assert "record" not in seen_by(page, "failed", {})
    assert seen_by(page, "running", {"/state-store": kept})["record"] == SENT
    assert seen_by(page, "success", {"/state-store": kept})["record"] == SENT


def xcom(key: str, value: Any) -> dict[str, Any]:
    return {f"/xcomEntries/{key}": {"value": value}}


@pytest.mark.parametrize(
    ("deferral", "ended_at", "is_being_cancelled"),
    [(5.0, None, True), (None, None, False), (15.0, None, False), (5.0, "2026-01-01T00:00:00Z", False)],
)
def test_cancellation_by_a_trigger_is_awaited(page, deferral, ended_at, is_being_cancelled):
    instance = {"state": "failed", "try_number": 1, "end_date": ended_at or f"{datetime.now(UTC):%FT%TZ}"}
    keys = ["crew_progress", "crew_deferral"]
    answers = {"/taskInstances/task": instance, "/tasks/task": {"template_fields": ["crew_conn_id"]}}
    answers |= {"/xcomEntries": {"xcom_entries": [{"key": key, "timestamp": "now"} for key in keys]}}
    known = progress(polled_at=10.0, choices=CANCELS)
    answers |= xcom("crew_progress", known) | xcom("crew_deferral", deferral)
    first = (
        f"new Promise((seen) => {{ const stop = watch({json.dumps(TASK)}, (news) => (stop(), seen(news.seen))) }})"
    )
    seen = with_airflow(page, answers, f"({{ watch }}) => {first}")

    assert seen["isBeingCancelled"] is is_being_cancelled
    shown = told(page, **seen)
    assert shown["title"] == ("Being cancelled" if is_being_cancelled else "Stopped waiting")
    assert (CANCELS["mark"] in shown["end"]["reason"]) is (deferral is not None and not is_being_cancelled)
    assert shown["end"]["cost"].startswith("billed")


def test_time_of_a_retry_comes_from_its_delay(page):
    assert seen_by(page, "up_for_retry", {})["retryAt"] == 1_767_225_600 + 300


def test_each_request_about_an_iteration_names_it(page):
    task = TASK | {"regionId": "a-region", "regionIndex": 1}
    answers = {
        "/taskInstances/task": {"state": "failed", "try_number": 1, "end_date": None},
        "/xcomEntries": {"xcom_entries": [{"key": "kickoff_id", "timestamp": "now"}]},
        "/xcomEntries/kickoff_id": {"value": KICKOFF_ID},
        "/tasks/task": {"template_fields": ["crew_conn_id"]},
        "/tries": {"task_instances": [{"try_number": 1, "state": "failed", "start_date": None, "end_date": None}]},
    }
    read = f"new Promise((seen) => {{ const stop = watch({json.dumps(task)}, (news) => (stop(), seen(news))) }})"
    both = f"async ({{ watch, attempts }}) => [await {read}, await attempts({json.dumps(task)}), asked][2]"
    asked = with_airflow(page, answers, both)

    named = [url for url in asked if "region_id=a-region" in url and "region_index=1" in url]
    assert [url for url in asked if url not in named] == [url for url in asked if "/tasks/task" in url]
    ends = ("/taskInstances/task", "/xcomEntries", "/xcomEntries/kickoff_id", "/state-store", "/tries", "/logs/1")
    assert {urlsplit(url).path.rpartition(end)[1] for url in named for end in ends} >= {*ends}
