"""Result files of a batch: one line for each row, from all facts."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import Any

from airflow_provider_crew.batch.facts import Fact, Status, fact, failure
from airflow_provider_crew.batch.files import IN_MEMORY
from airflow_provider_crew.batch.fold import MOST_TOKENS, Ending, Row, Rows, ending, tokens_in, unpack
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.client.errors import UncertainKickoff
from airflow_provider_crew.exceptions import CrewTaskError

RESULTS = "results"
FAILED = "failed"

_STATUSES: dict[str, Status] = {"left": "error", "refused": "error", "stopped": "cancelled"}
_LOST = UncertainKickoff("The files have lost the end of the row.")
_Usages = defaultdict[tuple[str, str], dict[int, Mapping[str, Any]]]


def write_results(batch: BatchRun) -> tuple[Counter[str], dict[str, float]]:
    """Write one line for each row, and return the rows by status, and the usage of all executions."""
    rows = Rows([Row(row.index, row.key, row.fingerprint, row.inputs) for row in batch.rows.given])
    statuses, usage, files = Counter[str](), Counter[str](), batch.files
    with SpooledTemporaryFile(IN_MEMORY) as copy:  # a thousand files in an object store take minutes to read
        last, usages = _copied(batch, rows, copy)
        rows.add_numbers(unpack(batch.rows.numbers), batch.carried.started_at)
        if running := [row for row in rows if row.state == "running"]:
            for row in running:  # another process may have named it since
                batch.rows.add(fact(row, row.number, "named", kickoff_id=row.kickoff.kickoff_id))
            raise CrewTaskError(f"{files.path} lacks the ends of rows. The next attempt reads their results.")

        def lines(some: Iterable[Row]) -> Iterator[dict[str, Any]]:
            for row in some:
                known: Fact = {}
                if found := last.get((row.key, row.fingerprint, row.number)):
                    copy.seek(found[1])
                    known = json.loads(copy.readline())
                yield _line(row, known, usages[row.key, row.fingerprint])

        for line in lines(rows):
            usage.update(line["usage"] or {})
            statuses[line["status"]] += line["index"] >= 0
        files.write(
            files.name_of(FAILED),
            (_failed(line, rows) for line in lines(rows.given) if line["status"] != "success"),
        )
        files.write(files.name_of(RESULTS), lines(rows.given))
    batch.rows = rows
    return statuses, dict(usage)


def _copied(
    batch: BatchRun, rows: Rows, copy: Any
) -> tuple[dict[tuple[str, str, int], tuple[Ending, int]], _Usages]:
    """Copy the facts about ends to a local file. Return where the one that counts is, and all usage."""
    last: dict[tuple[str, str, int], tuple[Ending, int]] = {}
    usages: _Usages = defaultdict(dict)
    for done in batch.each(batch.files.facts, batch.files.names()):
        for _, outcome in done:
            for each in outcome.result()[0]:
                rows.add(each)
                if each["what"] not in {"ended", "reported"}:
                    continue
                name, at = (each["key"], each["fingerprint"], each["number"]), copy.seek(0, 2)
                copy.write(json.dumps(each).encode() + b"\n")
                last[name] = max(last.get(name, (ending(each), at)), (ending(each), at))
                if each.get("usage"):
                    usages[name[:2]][each["number"]] = each["usage"]
    return last, usages


def _line(row: Row, known: Fact, usages: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a line about a row. ``known``: the fact about its end."""
    is_again, error = row.state == "not_started", known.get("error")
    if row.state == "uncertain" and not error:
        error = failure(_LOST, "kickoff")
    total = Counter[str]()
    for usage in usages.values():
        numbers = {name: n for name, n in usage.items() if type(n) in {int, float} and 0 <= n < MOST_TOKENS}
        total.update({"executions": int(tokens_in(usage) is not None)} | numbers)
    return {
        "key": row.key,
        "index": row.index,
        "fingerprint": row.fingerprint,
        "kickoff_id": row.kickoff.kickoff_id or None,
        "status": _STATUSES.get(row.state, row.state),
        "output": known.get("output"),
        "raw_output": known.get("raw_output"),
        "error": None if is_again else error,
        "usage": dict(total) or None,
        "attempts": row.executions,
        "started_at": row.kickoff.sent_at or None,
        "ended_at": known.get("ended_at"),
    }


def _failed(line: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """Return a line that can be the input of another batch."""
    told = {name: line[name] for name in ("key", "index", "status", "error")}
    return told | {"inputs": rows.given[line["index"]].inputs}
