"""What nobody should send, odd in every way: texts, JSON, documents of the service, bytes; and tests over them."""

from __future__ import annotations

import json
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import CrewError, error_record

TOKEN = "org-Token.0123456789"
# Of webhooks; and a thing to keep from those to whom it is one.
SECRET = "hook-Secret/0123+456789"
# Stand for what JSON's own writer does not write.
BIG, DEEP = "@big@", "@deep@"
_WRITTEN = [(re.compile(rb'"@big@"(?!:)'), b"9" * 400), (re.compile(rb'"@deep@"(?!:)'), b"[" * 600 + b"]" * 600)]
ODD_TEXTS = [
    *("", " ", "\x00", "\ud800", "\udfff\ud800", "..", "../../kickoff", "%2F..%2f", "%zz", "a?b#c", "\\"),
    *("a\r\nX-Injected: 1", "\u202e\ufeff", "日本", "null", "NaN", "1e999", '{"a": [1, {"b": "\\ud800"}]}'),
    *("9" * 5000, "[" * 5000, "{" * 50 + '"' * 50, "x" * 3000),
]
any_text = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(ODD_TEXTS)
any_number = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 2**63, 2**64, -(10**30), 10**400, 1e308, -0.0, float("nan"), float("inf")])
)
any_leaf = st.none() | st.booleans() | any_number | any_text
any_json = st.recursive(
    any_leaf,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)

_UNIT = Path(__file__).parents[1] / "unit"


def lines_of(name: str) -> list[dict[str, Any]]:
    """Return the objects in a table of the unit tests, which has their meaning."""
    lines = (_UNIT / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def inner_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        yield from value if isinstance(value, dict) else ()
        for inner in value.values() if isinstance(value, dict) else value:
            yield from inner_keys(inner)


BODIES = lines_of("bodies.txt")
INPUTS = [body for body in BODIES if "inputs" in body]
STATUSES = [body for body in BODIES if "inputs" not in body]
WORDS = [body[key] for body in STATUSES for key in ("state", "status") if isinstance(body.get(key), str)]
KICKOFFS: list[dict[str, Any]] = [{"kickoff_id": "6f1d9c1e-3f0c-4f6e-9f43-2a1f6f0f9a11"}, {"kickoff_id": 4711}]
ERRORS: list[dict[str, Any]] = [
    {"error": "Invalid", "message": "Inputs", "details": {"missing_inputs": ["topic"]}},
    {"title": "Bad gateway", "detail": [{"loc": ["body", "inputs", 0], "msg": "Field required", "input": TOKEN}]},
]
KEYS = sorted({key for document in (*BODIES, *KICKOFFS, *ERRORS) for key in document})
INNER_KEYS = sorted({"__classname__", *inner_keys([*BODIES, *ERRORS])} - {*KEYS})
near_words = st.sampled_from([*WORDS, TOKEN, SECRET, f"401 for Bearer {TOKEN} of {SECRET}", BIG, DEEP]) | any_json
near_values = (
    near_words
    | st.dictionaries(st.sampled_from(INNER_KEYS), any_json, max_size=3)
    | st.lists(st.dictionaries(st.sampled_from(INNER_KEYS), any_json, max_size=3), max_size=3)
)


def changed(documents: list[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Take a good document, leave keys out, and put others in."""

    def change(document: dict[str, Any], gone: set[str], put: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in document.items() if key not in gone} | put

    return st.builds(
        change,
        st.sampled_from(documents),
        st.sets(st.sampled_from(KEYS), max_size=2),
        st.dictionaries(st.sampled_from(KEYS), near_values, max_size=3),
    )


def as_bytes(document: Any, encoding: str = "utf-8") -> bytes:
    """Write a document as JSON, with numbers and a depth that Python would not write."""
    raw = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for placeholder, written in _WRITTEN:
        raw = placeholder.sub(written, raw)
    return raw if encoding == "utf-8" else raw.decode("utf-8", "surrogatepass").encode(encoding, "surrogatepass")


def _spoilt(raw: bytes, place: int, put: bytes) -> bytes:
    at = place % (len(raw) + 1)
    return raw[:at] + put + raw[at + len(put) + place % 3 :]


_cuts = st.binary(max_size=3) | st.sampled_from([b'"', b"\\u", b"}"])
_TOO_DEEP = [b"[" * 50_000, b'{"status": "completed", "result": ' + b"[" * 3000 + b"]" * 3000 + b"}"]
_ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"]


def bodies(documents: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    """Return bytes in the place of such a document: nearly it, or nothing like it."""
    near = st.builds(as_bytes, changed(documents) | any_json, st.sampled_from(_ENCODINGS))
    spoilt = st.builds(_spoilt, st.sampled_from(documents).map(as_bytes) | near, st.integers(0, 400), _cuts)
    return st.one_of(near, near, spoilt, spoilt, st.binary(max_size=80) | st.sampled_from(_TOO_DEEP))


statuses = st.sampled_from([200, 200, 200, 201, 204, 302, 401, 403, 404, 408, 422, 429, 500, 503]) | st.integers(
    100, 999
)
# What a header may hold, once whatever ends a header is taken out.
any_header = any_text.map(lambda text: "".join(letter for letter in text if letter not in "\r\n\x00")[:2000])
LATE = "Wed, 21 Oct 99999 07:28:00 GMT"
_HEADERS = {
    "Content-Type": ["application/json", "text/html; charset=utf-16", "x; charset=\u00fc", TOKEN, SECRET],
    "Retry-After": ["5", "1e3", "²", "9" * 400, LATE, ", +9999999999", "Mon Oct 1:1:1:1"],
    "Location": ["/login", "https://[broken", f"https://{TOKEN}@x/{TOKEN}?{SECRET}", f"/{SECRET}", "//x:99999/"],
}
headers = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(usual) | any_header for name, usual in _HEADERS.items()}
)


# Cases of each kind. Without the variable they are always the same.
EXAMPLES = int(os.environ.get("CREW_FUZZ_CASES", "25"))
_MOST_COMPUTING = 5.0
_LONGEST_TEXT = 200_000


def cases(strategy: st.SearchStrategy[Any], *, known: Iterable[Any] = ()) -> Callable[..., Any]:
    """Run a test for each known case and for generated ones, and check the time of each."""

    def declare(test: Callable[..., None]) -> Callable[..., None]:
        def each(case: Any) -> None:
            computed = time.process_time()
            try:
                test(case)
            except Exception as error:
                error.add_note(ascii(case)[:2000])
                raise
            assert time.process_time() - computed < _MOST_COMPUTING

        each.__name__ = each.__qualname__ = test.__name__
        each.__module__ = test.__module__
        # Deferred, because Hypothesis would warn of the length of some strategies.
        run: Any = hypothesis.given(case=st.deferred(lambda: strategy))(each)
        for case in known:
            run = hypothesis.example(case=case)(run)
        run = hypothesis.settings(
            max_examples=EXAMPLES,
            derandomize="CREW_FUZZ_CASES" not in os.environ,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )(run)
        return pytest.mark.timeout(max(300, EXAMPLES))(run)

    return declare


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the error of this package that it raises."""
    try:
        return call()
    except CrewError as error:
        assert_presentable(error)
        return error


def assert_presentable(error: BaseException, *secrets: str) -> None:
    """Check that an error shows no secret and can be stored."""
    for secret in {TOKEN, *secrets}:
        for text in _texts_of(error):
            assert secret not in text
            assert quote(secret, safe="") not in text
    text = str(error)
    assert text
    odd = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not odd - {"\n"}
    assert len(text) < _LONGEST_TEXT
    if isinstance(error, CrewError):
        stored = json.dumps(error_record(error), ensure_ascii=False)
        assert stored.encode()
        assert "\\u0000" not in stored.replace("\\\\", "")


def _texts_of(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    below = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if below is not None:
        yield from _texts_of(below)


def assert_storable(value: Any) -> None:
    """Check that Airflow's stores would accept a result."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    assert text.encode()
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json.loads(text) == value
