"""A batch whose process, storage or Airflow fails at the worst moment: nothing is started twice, or lost."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections import Counter, UserList
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.io import attach
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from airflow_provider_crew.batch import batch as batches_story
from airflow_provider_crew.batch import recall
from airflow_provider_crew.batch.facts import STATUSES
from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.batch.results import write_results
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.batch.store import last_kickoff
from airflow_provider_crew.client.errors import LostContact, error_record
from airflow_provider_crew.exceptions import (
    BatchFailed,
    CrewTaskError,
    CrewTaskFailed,
    WaitedTooLong,
)
from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.task.record import Store
from tests.airflow_runs import TOKEN, eventually
from tests.faults.held import HeldAnswer
from tests.integration.batches import Killed, killed_at, lines, one_by_one, rows
from tests.integration.operators import both_ways
from tests.integration.tasks import (
    CONNECTION,
    FAILING,
    QUICK,
    SLOW,
    Task,
    TaskStateStore,
    api_error,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


def recorded_ids(store: TaskStateStore) -> list[str]:
    slots = [json.loads(value) for name, value in store._kept.items() if name.startswith("crew_batch_")]
    return [each["kickoff_id"] for slot in slots for each in slot["facts"] if each["what"] == "named"]


def died(task: Task) -> None:
    with pytest.raises(Killed):
        task.run()


# The storage fails.


class Bucket(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Object store that breaks when a file is opened if ``breaks_at(path, mode)``. A process has only one."""

    def __init__(self) -> None:
        super().__init__()
        self.path = "memory://results/out"
        self.files = ObjectStoragePath(self.path)
        self.works()

    def works(self) -> None:
        self.breaks_at: Callable[[str, str], bool] = lambda *_: False

    def _open(self, path: str, mode: str = "rb", *given: Any, **named: Any) -> Any:
        if self.breaks_at(path, mode):
            raise OSError("the bucket does not respond")
        return super()._open(path, mode, *given, **named)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    found = Bucket()
    attach("memory", fs=found)
    yield found
    found.works()


def test_results_are_kept_if_the_next_attempt_cannot_write_its_own(live_crew, batch, bucket):
    given = rows()
    task = batch(given, result_path=bucket.path)
    task.run()
    given.append({"topic": "new", "audience": "sailors"})
    task.clear()
    bucket.breaks_at = lambda path, mode: mode == "wb" and "results-" in path
    with pytest.raises(CrewTaskError):
        task.run()
    bucket.works()
    assert len(lines(bucket.files)) == 10
    task.run()
    assert len(live_crew.kickoffs) == len(lines(bucket.files)) == 11


@pytest.mark.parametrize("times", [1, 3])
def test_bucket_that_breaks_for_a_moment_delays_the_batch(live_crew, batch, bucket, times):
    breaks = count(1)

    def now_and_then(_path: str, mode: str) -> bool:
        return mode == "wb" and next(breaks) % (times + 1) != 0

    bucket.breaks_at = now_and_then
    assert batch(result_path=bucket.path).run()["counts"]["success"] == 10
    assert len(live_crew.kickoffs) == 10


@pytest.mark.parametrize(
    ("name", "times"), [("facts/", 1), ("facts/", 2), ("facts/", 3), ("results-", 1), ("manifest-", 1)]
)
def test_bucket_that_breaks_for_long_costs_nothing(live_crew, batch, bucket, name, times):
    task, writes = batch(result_path=bucket.path, max_active=4), count(1)
    bucket.breaks_at = lambda path, mode: mode == "wb" and name in path and next(writes) >= times
    with pytest.raises(CrewTaskError):
        task.run()
    bucket.works()
    assert task.run()["counts"]["success"] == 10
    assert len(live_crew.kickoffs) == 10


def test_files_of_a_deleted_run_are_facts_for_the_new_one(live_crew, batch, monkeypatch):
    live_crew.scenario = FAILING
    task = batch(rows(3), max_failed=None)
    task.ti.try_number = 7
    killed_at(monkeypatch, batches_story, "write_results")
    died(task)
    live_crew.scenario = QUICK
    again = batch(rows(3))
    again.store = TaskStateStore()
    assert again.run()["counts"]["success"] == 3
    again.clear()
    assert again.run()["counts"]["success"] == 3
    assert len(live_crew.kickoffs) == 6


# Another process writes as well.


def test_late_response_to_a_replaced_process_is_found(live_crew, batch, store, timing):
    timing(batch_save=0.2)  # the others have responded before
    held = HeldAnswer(on="kickoff")
    live_crew.faults.add(held)
    first, second = batch(rows(3), max_active=3, max_failed=None), batch(rows(3), max_active=3, max_failed=None)
    first.store = TaskStateStore(store)
    errors: list[BaseException] = []

    def replaced() -> None:
        try:
            first.run()
        except BaseException as error:  # noqa: BLE001 - it is replaced
            errors.append(error)

    process = threading.Thread(target=replaced)
    process.start()
    # The process has recorded two responses. The crew has sent them a moment before.
    eventually(lambda: held.is_held and len(recorded_ids(first.store)) == 2, pause=0.02)
    first.store.breaks_at = lambda name: name == "set"
    second.ti.try_number = 1
    assert second.run()["counts"] == dict.fromkeys(STATUSES, 0) | {"success": 2, "uncertain": 1}
    held.release()
    process.join()
    assert errors
    second.clear()
    assert second.run()["counts"]["success"] == 3
    assert len(live_crew.kickoffs) == 3


def test_replaced_process_sends_no_further_row(live_crew, batch, store, monkeypatch, timing):
    timing(batch_save=0.0)
    monkeypatch.setattr(BatchRun, "each", one_by_one)
    store.breaks_at = lambda call: call == "set" and bool(live_crew.ids)
    with pytest.raises(Exception, match="does not answer"):
        batch(rows(3), max_active=3).run()
    assert len(live_crew.ids) == 1


@pytest.mark.usefixtures("live_crew")
def test_replaced_process_does_not_finish(batch, out, store):
    def is_replaced(call: str) -> bool:
        return call == "set" and "".join(path.read_text() for path in out.glob("facts/*")).count('"ended"') == 3

    store.breaks_at = is_replaced
    with pytest.raises(Exception, match="does not answer"):
        batch(rows(3)).run()
    assert not [*out.glob("results-*")]


def test_files_that_vanish_while_read_start_nothing(live_crew, batch, out, monkeypatch):
    task = batch(rows(3))
    with monkeypatch.context() as patched:
        killed_at(patched, batches_story, "write_results")
        died(task)
    names = ResultFiles.names

    def vanishing(self: ResultFiles) -> list[str]:
        found = names(self)
        shutil.rmtree(out / "facts")
        return found

    monkeypatch.setattr(ResultFiles, "names", vanishing)
    with pytest.raises(CrewTaskError):
        task.run()
    assert len(live_crew.kickoffs) == 3


def add_late_fact(out: Any, number: int, **about: Any) -> None:
    """Write what another process knows about the kickoff of the only row."""
    sent = next(line for file in (out / "facts").iterdir() for line in file.read_text().splitlines())
    about |= {"number": number} | {name: json.loads(sent)[name] for name in ("key", "fingerprint")}
    (out / "facts" / "1-late.jsonl").write_text(json.dumps(about))


def test_late_result_is_replaced_if_all_rows_run_again(live_crew, batch, out):
    live_crew.scenario = FAILING
    task = batch(1, max_failed=0, rerun="all")
    for _ in range(2):
        with pytest.raises(BatchFailed):
            task.run()
    about = {"status": "success", "error": None, "watch": 0, "kickoff_id": live_crew.ids[0], "output": "Late."}
    add_late_fact(out, 1, what="ended", **about)
    assert task.run()["counts"]["success"] == 1
    live_crew.scenario = QUICK
    task.clear()
    assert task.run()["counts"]["success"] == 1
    assert len(live_crew.kickoffs) == 3


def test_late_name_before_a_rejected_kickoff_is_in_the_store(live_crew, batch, out, monkeypatch):
    live_crew.scenario = SLOW
    live_crew.faults.reset(on="kickoff", after_taken=True)
    task = batch(1, max_failed=0)
    with pytest.raises(CrewTaskFailed):
        task.run()
    live_crew.faults.answer(401, on="kickoff")
    task.clear()
    with pytest.raises(CrewTaskFailed):
        task.run()
    live_crew.faults.clear()
    add_late_fact(out, 1, what="named", kickoff_id=live_crew.ids[0])
    with monkeypatch.context() as patched:
        killed_at(patched, batches_story.Batch, "_wait")
        died(task)
    for file in (out / "facts").iterdir():
        file.unlink()
    live_crew.finish(live_crew.ids[0])
    live_crew.scenario = QUICK
    assert task.run()["counts"]["success"] == len(live_crew.kickoffs) == 1


def test_execution_that_is_named_at_the_end_is_waited_for(live_crew, batch, out, monkeypatch):
    """Another process writes the response while this one writes the results."""
    live_crew.faults.reset(on="kickoff", after_taken=True)
    task = batch(1, max_failed=None)

    def overtaken(run: BatchRun) -> Any:
        add_late_fact(out, 1, what="named", kickoff_id=live_crew.ids[0])
        return write_results(run)

    with monkeypatch.context() as patched:
        patched.setattr(batches_story, "write_results", overtaken)
        with pytest.raises(CrewTaskError):
            task.run()
    end = live_crew.xcoms.progress[-1]["end"]
    assert (end["cost"], end["if_cleared"][:23]) == ("running", "waits for 1 running row")
    task.clear()
    assert task.run()["counts"]["success"] == len(live_crew.kickoffs) == 1


def test_slot_is_overwritten_after_its_rows_are_elsewhere(live_crew, batch, out, store, monkeypatch):
    """The slots are full, and another one has an older fact about a row."""
    live_crew.scenario = SLOW
    task = batch(32, max_active=32, max_failed=None)
    with monkeypatch.context() as patched:
        killed_at(patched, batches_story.Batch, "_wait")
        died(task)
    slots = [store.entries[f"crew_batch_{slot}"] for slot in range(4)]
    facts = sorted((each for slot in slots for each in slot["facts"]), key=lambda each: str(each["key"]))
    for slot, own in enumerate((facts[:32], facts[32:], [facts[0]], [])):
        store.set(f"crew_batch_{slot}", slots[3] | {"facts": own})
    for file in (out / "facts").iterdir():
        if '"named"' in file.read_text():
            file.unlink()
    with monkeypatch.context() as patched:
        killed_at(patched, Store, "set", call=3)  # the entry, the first slot, and the second
        died(task)
    for kickoff_id in live_crew.ids:
        live_crew.finish(kickoff_id)
    assert task.run()["counts"]["success"] == len(live_crew.kickoffs) == 32


def test_two_batches_that_begin_together_do_not_mix(live_crew, batch, out, monkeypatch):
    write = ResultFiles.write

    def overtaken(self: ResultFiles, name: str, values: Any) -> None:
        write(self, name, values)
        if name.startswith("batch-"):
            write(self, "batch-0123456789abcdef.json", [{"schema_version": 1, "run_id": "manual__2027"}])

    with monkeypatch.context() as patched:
        patched.setattr(ResultFiles, "write", overtaken)
        with pytest.raises(CrewTaskFailed):
            batch(rows(3)).run()
    assert not live_crew.kickoffs
    (out / "batch-0123456789abcdef.json").unlink()
    assert batch(rows(3)).run()["counts"]["success"] == 3


@pytest.mark.parametrize("text", ["", "a note", '{"key": "topic 1"}\n', '{"what": "ended", "key"'])
def test_files_that_are_no_facts_are_ignored(live_crew, batch, out, text):
    task = batch(rows(3))
    task.run()
    (out / "facts" / "1-other.jsonl").write_text(text)
    (out / "facts" / "notes.txt").write_text(text)
    task.clear()
    assert task.run()["counts"]["success"] == 3
    assert len(live_crew.kickoffs) == 3


class _Writes:
    """Writes of a batch to the store and the files. The last one does not happen, because the process dies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        for owner, name in ((Store, "set"), (ResultFiles, "write")):
            monkeypatch.setattr(owner, name, self._counting(getattr(owner, name)))

    def _counting(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left <= 0:
                raise Killed
            return write(*given, **named)

        return counting


@pytest.mark.parametrize("loses", ["nothing", "the store", "the files"])
def test_process_may_be_killed_before_any_write(live_crew, batch, out, monkeypatch, loses):
    """A row is started once. It succeeds, or its response was lost with the process, so it is uncertain."""
    for last in count(1):
        given = [row | {"topic": f"{last}, {row['topic']}"} for row in rows(5)]
        task = batch(given, max_active=2, max_failed=None, result_path=str(out / str(last)))
        task.store = TaskStateStore()
        with monkeypatch.context() as patched:
            writes = _Writes(patched, last)
            with suppress(Killed):
                task.run()
        if writes.left > 0:
            break
        if loses == "the store":  # as Airflow 3.4 does when it clears a task
            task.store.texts.clear()
            task.clear()
        if loses == "the files":
            shutil.rmtree(out / str(last) / "facts", ignore_errors=True)
        counts = task.run()["counts"]
        sent = Counter(kickoff.inputs["topic"] for kickoff in live_crew.kickoffs)
        own = {topic: number for topic, number in sent.items() if topic.startswith(f"{last}, ")}
        assert set(own.values()) <= {1}, f"write {last}: {own}"
        assert counts["success"] + counts["uncertain"] == 5, f"write {last}: {counts}"
        if loses == "nothing":
            assert counts["uncertain"] <= 2, f"write {last}: {counts}"
    assert last > 15


# The crew fails.


@both_ways
def test_row_without_a_status_ends_while_others_go_on(live_crew, batch, each_look_takes, deferrable):
    live_crew.scenario = SLOW
    task = batch(rows(16), max_active=4, max_outage=600, max_failed=None, timeout=50_000, deferrable=deferrable)
    each_look_takes(5)
    pass_time, polls = live_crew.after, count(1)

    def finish_one_at_times(request: Any) -> None:
        pass_time(request)
        if request.operation == "status":
            live_crew.set_status(live_crew.kickoffs[0].kickoff_id, {"status": 7})
            running = [each for each in live_crew.kickoffs[1:] if not each.standing(live_crew.now()).over]
            if running and next(polls) % 20 == 0:
                live_crew.finish(running[0].kickoff_id)

    live_crew.after = finish_one_at_times
    manifest = task.run()
    assert (manifest["counts"]["success"], manifest["counts"]["error"]) == (15, 1)


@both_ways
def test_row_whose_large_status_is_no_json_ends_alone(live_crew, batch, timing, monkeypatch, deferrable):
    timing(batch_quick=0.0)
    send = Exchange.send

    async def odd(exchange: Exchange, answer: Answer) -> None:
        is_odd = exchange.request.operation == "status" and exchange.request.path.endswith(live_crew.ids[0])
        await send(exchange, replace(answer, body=b"x" * 3_000_000) if is_odd else answer)

    monkeypatch.setattr(Exchange, "send", odd)
    options: Any = {"max_active": 2, "max_failed": None, "max_outage": 0.5, "deferrable": deferrable}
    counts = batch(rows(6), **options).run()["counts"]
    assert (counts["success"], counts["error"]) == (5, 1)


def test_rejected_rows_start_again_if_their_ends_were_not_stored(live_crew, batch, monkeypatch):
    live_crew.faults.answer(422, on="kickoff", times=2)
    task, append = batch(rows(2), max_failed=0), ResultFiles.append

    def full(files: ResultFiles, facts: Any) -> None:
        kept = list(facts)
        if any(each["what"] == "ended" for each in kept):
            raise CrewTaskError("The file was not written: the disk is full.")
        append(files, kept)

    monkeypatch.setattr(ResultFiles, "append", full)
    with pytest.raises(CrewTaskError):
        task.run()
    monkeypatch.setattr(ResultFiles, "append", append)
    assert task.run()["counts"]["success"] == len(live_crew.kickoffs) == 2


def test_result_is_stored_before_another_row_ends_the_attempt(live_crew, batch, out):
    live_crew.scenario = SLOW
    task = batch(rows(2), max_active=2, deferrable=True)
    waiting = task.deferred()
    live_crew.finish(live_crew.ids[0])
    event = task.event_of(waiting)
    (lost,) = {"0", "1"} - event["ends"].keys()
    event["ends"] = {lost: error_record(LostContact("There was no response."))} | event["ends"]
    live_crew.after = lambda _: live_crew.faults.answer(503, on="status", for_seconds=math.inf)
    with pytest.raises(LostContact):
        task.resume(waiting, event)
    facts = [json.loads(line) for file in (out / "facts").iterdir() for line in file.read_text().splitlines()]
    assert [each["status"] for each in facts if each["what"] == "ended"] == ["success"]


def test_retry_at_another_crew_starts_nothing_there(live_crew, batch, monkeypatch):
    live_crew.scenario = SLOW
    batch(rows(4), max_active=1, deferrable=True).deferred()
    with LocalCrewService(QUICK, token=TOKEN) as other:
        monkeypatch.setenv(CONNECTION, other.connection_uri)
        with pytest.raises(CrewTaskFailed):
            batch(rows(4), max_active=2).run()
        assert not other.kickoffs


def test_crew_that_asks_for_a_day_is_asked_again_after_minutes(live_crew, batch, monkeypatch):
    live_crew.faults.answer(429, on="kickoff", times=3, retry_after=86_400)
    clock, began = time.time, time.time()
    monkeypatch.setattr(time, "time", lambda: began + 1_000 * (clock() - began))  # a day takes 86 seconds
    monkeypatch.setattr("airflow_provider_crew.hooks.polling.SteadyClock.__call__", lambda _: time.time())
    task = batch(rows(1), timeout=80_000, max_outage=None)
    assert task.run()["counts"]["success"] == 1


def test_outage_makes_few_rows_uncertain(live_crew, batch, timing):
    timing(batch_back_off=0.3)
    live_crew.faults.answer(503, on="kickoff", for_seconds=1.0)
    counts = batch(rows(60), max_active=30, max_failed=None).run()["counts"]
    assert counts["uncertain"] <= 12
    assert counts["success"] == 60 - counts["uncertain"]


@pytest.mark.usefixtures("live_crew")
def test_unreadable_storage_leaves_the_cost_unknown(batch, bucket):
    task = batch(rows(3), result_path=bucket.path, max_failed=None)
    task.run()
    bucket.breaks_at = lambda _, mode: mode == "rb"
    task.clear()
    with pytest.raises(CrewTaskError) as raised:
        task.run()
    assert raised.value.cost == "unknown"


def test_killed_while_airflow_is_away_keeps_kickoff_ids(live_crew, batch, store):
    live_crew.scenario = SLOW
    task, writes = batch(rows(3), max_active=3), count(1)

    def is_away(call: str) -> bool:
        if call != "set" or len(live_crew.kickoffs) < 3:
            return False
        if next(writes) > 10:  # three rows cause three writes at most, so these are repeated
            raise Killed
        return True

    store.breaks_with, store.breaks_at = api_error(503), is_away
    died(task)
    store.breaks_at = lambda _: False
    live_crew.scenario = QUICK
    for kickoff in live_crew.kickoffs:
        live_crew.finish(kickoff.kickoff_id)

    assert task.run()["counts"]["success"] == len(live_crew.kickoffs) == 3


class _Lazy(UserList[str]):
    """A mapped XCom as Airflow hands it over: a sequence that is no list."""


def test_sequence_in_the_inputs_of_a_failed_row_is_written(live_crew, batch, out):
    live_crew.scenario = FAILING
    batch([{"topic": _Lazy(["a", "b"]), "audience": "sailors"}], key=None, max_failed=None).run()

    assert lines(out, "failed")[0]["inputs"]["topic"] == ["a", "b"]
    assert len(live_crew.kickoffs) == 1


def test_key_with_a_line_break_forges_no_line(live_crew, batch, capfd):
    live_crew.scenario = FAILING
    row = {"topic": "a\n2026-11-27 [info] All rows succeeded.", "audience": "sailors"}
    batch([row], key="topic", max_failed=None).run()

    assert not [line for line in capfd.readouterr().out.splitlines() if line.startswith("2026-11-27 [info] All")]


def test_token_renewed_before_a_group_stops_no_row(live_crew, batch, monkeypatch):
    rotations = count()

    def renew(request: Any) -> None:
        if request.operation == "inputs" and next(rotations) == 0:
            live_crew.rotate_token("renewed-token-0815")
            monkeypatch.setenv(CONNECTION, live_crew.connection_uri)

    live_crew.after = renew
    counts = batch(rows(12), max_active=4).run()["counts"]

    assert counts["success"] == len(live_crew.kickoffs) == 12
    # The others of the group may be sent when the first response has been read.
    assert 1 <= len([each for each in live_crew.requests.on("kickoff") if each.status == 401]) <= 4


def test_row_does_not_take_the_kickoff_id_of_another(live_crew, batch, monkeypatch):
    """Their responses arrive together."""
    monkeypatch.setattr(BatchRun, "each", lambda *given, **_: [[each for (each,) in one_by_one(*given)]])
    live_crew.faults.answer(200, on="kickoff", times=3, body={"kickoff_id": live_crew.new_execution()})
    counts = batch(rows(3), max_active=3, max_failed=None).run()["counts"]
    assert (counts["success"], counts["uncertain"]) == (1, 2)


def test_rate_limited_crew_gets_a_few_requests(live_crew, batch, timing):
    timing(batch_back_off=3600.0)
    live_crew.faults.answer(429, on="kickoff", times=10_000)
    with pytest.raises(WaitedTooLong):
        batch(rows(40), timeout=3, max_active=40, max_outage=None).run()
    assert 0 < len(live_crew.requests.on("kickoff")) <= 12  # three for each row of the first group


def test_ids_that_are_stored_after_a_clear_are_found(live_crew, batch, store, monkeypatch):
    """Airflow 3.4 deletes the entries of a task that it clears, and kills its process seconds later."""
    live_crew.scenario = SLOW
    task = batch(rows(4), max_active=4)
    monkeypatch.setattr(BatchRun, "each", one_by_one)
    operator, write = task.begin(), ResultFiles.write

    def clear_at_third_kickoff() -> None:
        if len(live_crew.ids) == 3:
            store.texts.clear()
            task.clear()

    def write_until_killed(files: ResultFiles, name: str, values: Any) -> None:
        if name.startswith("facts/") and live_crew.kickoffs:
            raise Killed
        write(files, name, values)

    live_crew.at_kickoff = clear_at_third_kickoff
    with monkeypatch.context() as patched:
        patched.setattr(ResultFiles, "write", write_until_killed)
        with pytest.raises(Killed):
            operator.execute(task.context)
    live_crew.at_kickoff = lambda: None
    for kickoff_id in live_crew.ids:
        live_crew.finish(kickoff_id)

    assert task.run()["counts"]["success"] == 4
    assert len(live_crew.kickoffs) == 4


def test_uncertain_rows_can_be_adopted_after_a_clear(live_crew, batch, store, monkeypatch):
    """Airflow 3.4 deletes the entries of a task that it clears. A user can adopt only what the store has."""
    live_crew.scenario = SLOW
    task = batch(rows(2), max_active=2, max_failed=None)
    store.breaks_with, store.breaks_at = Killed(), lambda call: call == "set" and bool(live_crew.kickoffs)
    with pytest.raises(Killed):
        task.run()
    store.breaks_at = lambda _: False
    task.clear()
    store.texts.clear()
    with monkeypatch.context() as process:
        killed_at(process, recall, "save_entry")
        died(task)

    group, last = last_kickoff(store.entries, "topic 0")
    assert (group in store.entries, last and last.kickoff_id) == (True, None)
    assert task.run()["counts"]["uncertain"] == 2
