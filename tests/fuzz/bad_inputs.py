"""Inputs, meta and webhooks of a kickoff: whatever a DAG, a template or another task can come up with."""

from __future__ import annotations

import json
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from difflib import SequenceMatcher
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from airflow_provider_crew.client.api import KickoffRequest, compare_inputs, plain
from airflow_provider_crew.client.errors import Cost, InvalidInputs
from airflow_provider_crew.client.models import read_inputs
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import outcome, presentable
from tests.fuzz.bad_tasks import Store, context, ended, needed_by
from tests.fuzz.bad_values import INPUTS, SECRET, any_json, any_text, as_bytes, changed


class Lazy(Sequence[Any]):
    """As Airflow's results of mapped tasks: fetched one by one."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._length:
            raise IndexError
        return index


class Names(Mapping[str, Any]):
    """Names and values that are looked up."""

    def __getitem__(self, key: str) -> Any:
        return key.upper()

    def __iter__(self) -> Iterator[str]:
        return iter(["topic", "\ud800"])

    def __len__(self) -> int:
        return 2


class Word(str):
    __slots__ = ()


class Colour(str, Enum):  # noqa: UP042 - as it is found in DAGs
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Point:
    x: int = 1


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - as it is found in DAGs


def nested(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = [value]
    return value


_MAKERS: list[Callable[[], Any]] = [
    lambda: b"bytes",
    lambda: bytearray(b"bytes"),
    lambda: memoryview(b"bytes"),
    lambda: datetime(2026, 1, 1, tzinfo=UTC),
    lambda: date(2026, 1, 1),
    lambda: timedelta(days=1),
    lambda: Decimal("NaN"),
    lambda: Fraction(1, 3),
    lambda: UUID(int=7),
    lambda: {1, 2},
    lambda: frozenset("ab"),
    lambda: 1j,
    lambda: range(3),
    lambda: Lazy(3),
    lambda: UserList([1, float("nan")]),
    lambda: UserDict({"a": {2}}),
    lambda: OrderedDict(a=1),
    lambda: MappingProxyType({"a": "\ud800"}),
    lambda: ChainMap({"a": 1}, {"b": 2}),
    lambda: deque([1, 2]),
    lambda: array("d", [0.5]),
    lambda: Pair(1, (2,)),
    lambda: (number for number in range(3)),
    Names,
    Point,
    object,
    SimpleNamespace,
    lambda: len,
    lambda: TypeError,
    lambda: ...,
    lambda: Word("word"),
    lambda: Colour.RED,
    lambda: Level.HIGH,
    lambda: nested(64),
    lambda: {None: 1, 7: 2, b"k": 3},
    lambda: {Word("key"): float("inf")},
    lambda: {Colour.RED: Word("x")},
    lambda: {"x" * 50_000: {"y" * 50_000: object()}},
    lambda: {"\ud800": object()},
    lambda: {"\x00": float("nan")},
    lambda: dict.fromkeys(map(str, range(3000)), "many"),
]


@dataclass(frozen=True)
class ToMake:
    """An object that is made when it is needed, since not all of them can be shown by who reports a finding."""

    number: int

    def __call__(self) -> Any:
        return _MAKERS[self.number]()


def made(case: Any) -> Any:
    """Return a case with the objects that it asks for."""
    match case:
        case ToMake():
            return case()
        case dict():
            return {key: made(value) for key, value in case.items()}
        case list() | tuple():
            return type(case)(made(value) for value in case)
    return case


each_object = tuple(map(ToMake, range(len(_MAKERS))))
any_object = st.sampled_from(each_object)
any_data = st.recursive(
    any_json | any_object,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=4,
)
any_inputs = st.dictionaries(any_text, any_data, max_size=3) | any_data
_NAMES_ON_THE_WIRE = {
    "meta": "meta",
    "task_webhook_url": "taskWebhookUrl",
    "step_webhook_url": "stepWebhookUrl",
    "crew_webhook_url": "crewWebhookUrl",
    "human_input_webhook_url": "humanInputWebhookUrl",
    "webhooks": "webhooks",
    "restore_from_state_id": "restoreFromStateId",
}
_WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example", "realtime": False}
near_webhooks = st.fixed_dictionaries(
    {},
    optional={
        "events": st.just(["task_completed"]) | any_data,
        "url": st.just("https://hooks.example") | any_data,
        "realtime": any_data,
        "authentication": any_data | st.just({"strategy": "bearer", "token": SECRET}),
        "x": any_data,
    },
)
any_webhooks = st.just(_WEBHOOKS) | near_webhooks | any_data
any_options = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(_NAMES_ON_THE_WIRE, any_data) | {"webhooks": any_webhooks}
)


def what_is_written_is_json(_: World, case: Any) -> None:
    inputs, options = made(case)
    came = outcome(lambda: KickoffRequest.of(inputs, **options))

    if isinstance(came, InvalidInputs):
        assert came.cost is Cost.NONE
        return
    written = json.loads(came.body)
    assert written["inputs"] == json.loads(json.dumps(plain(inputs, "inputs"), allow_nan=False))
    assert written.keys() <= {"inputs", *(wire for name, wire in _NAMES_ON_THE_WIRE.items() if name in options)}
    for name in written.keys() - {"inputs"}:
        assert written[name]
    if "webhooks" in written:
        assert written["webhooks"]["url"]
        assert isinstance(written["webhooks"]["events"], list)


def a_secret_goes_along(_: World, case: Any) -> None:
    webhooks = made(case)
    came = outcome(lambda: KickoffRequest.of({}, webhooks=webhooks, webhook_secret=SECRET))

    if isinstance(came, InvalidInputs):
        presentable(came, SECRET)
        return
    assert came.secrets == (SECRET,)
    assert json.loads(came.body)["webhooks"]["authentication"] == {"strategy": "bearer", "token": SECRET}


def _resemble(name: str, other: str) -> bool:
    return SequenceMatcher(None, other, name).ratio() >= 0.6


def names_are_compared(_: World, case: Any) -> None:
    given, document, strict = case
    try:
        known = read_inputs(json.loads(as_bytes(document), parse_int=str))
    except (ValueError, RecursionError):
        return
    came = outcome(lambda: compare_inputs(given, known, strict=strict))

    # A flow's own field, which nobody is to give.
    given_names, listed = given.keys() - {"id"}, set(known.names) - {"id"}
    unlisted, missing = given_names - listed, listed - given_names - set(known.optional)
    needed = missing & set(known.required)
    mistyped = any(_resemble(name, other) for name in unlisted for other in missing)
    if isinstance(came, InvalidInputs):
        assert needed or mistyped or (strict and (missing or unlisted))
        assert came.cost is Cost.NONE
        return
    assert not needed
    assert not (strict and (missing or unlisted))
    assert not mistyped
    assert len(came) == len(unlisted) + bool(missing) + ("id" in given)
    assert sum(map(len, came)) < 200_000


some_names = any_text | st.sampled_from(["topic", "topics", "audience", "tone", "id", "ids"])
given_names = st.dictionaries(some_names, any_text, max_size=8)
described_names = st.fixed_dictionaries(
    {"name": some_names}, optional={"required": st.booleans() | any_json, "type": any_json}
)
listed_names = changed(INPUTS) | st.one_of(
    *(
        st.lists(each, max_size=8).map(lambda names: {"inputs": names})
        for each in (some_names, described_names, some_names | described_names)
    ),
    st.dictionaries(some_names, any_json, max_size=8).map(lambda names: {"inputs": names}),
)


def a_task_kicks_off_at_most_once(world: World, case: Any) -> None:
    inputs, meta, webhook, options = made(case)
    world.service.answer = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"kickoff_id": "4711"}'
    world.service.asked.clear()
    operator = CrewKickoffOperator(task_id="crew", inputs={}, validate_inputs=False)
    # As rendering leaves them: Airflow itself does not survive all of these in a DAG file.
    vars(operator).update({"inputs": inputs, "meta": meta, "crew_webhook_url": webhook, **options})
    store = Store()
    came = ended(lambda: operator.execute(context(store)))

    is_good = came == "4711"
    assert world.service.kickoffs == is_good
    assert (store.kept is not None) is is_good
    if not is_good:
        assert isinstance(came.failure, InvalidInputs)


_any_argument = (
    any_json | any_object | st.sampled_from([timedelta(0), timedelta.max, 1e300, 10**400, -1, "10", True])
)


def arguments_that_make_no_sense_are_refused(_: World, case: Any) -> None:
    kind, arguments = made(case)
    try:
        operator = kind(task_id="crew", **needed_by(kind), **arguments)
    except ValueError as error:
        task, why = str(error).split(": ", maxsplit=1)
        assert task == kind.__name__
        assert why.split(maxsplit=1)[0] in arguments
        return
    assert operator.poll_interval is None or 0 < operator.poll_interval <= 10 * 366 * 86_400
    assert 0 <= operator.timeout <= 10 * 366 * 86_400
    datetime.now(UTC) + timedelta(seconds=operator.timeout)
    assert operator.max_outage is None or 0 < operator.max_outage <= 10 * 366 * 86_400
    if kind is CrewRunOperator:
        assert operator.abandon_unknown_after is None or 0 <= operator.abandon_unknown_after <= 10 * 366 * 86_400
        assert operator.on_uncertain_kickoff in ("fail", "retry")
        assert operator.validate_inputs in (True, False, "strict")
        assert operator.on_invalid_output in ("fail", "retry")


def _where_it_may_stand(value: Any) -> list[Any]:
    return [
        ({"inputs": [value]}, {"meta": {"of": value}}),
        ({}, {"webhooks": value, "restore_from_state_id": None}),
        ({}, {"webhooks": {**_WEBHOOKS, "events": value}, "restore_from_state_id": value}),
        ({}, {"webhooks": {**_WEBHOOKS, "url": value}}),
    ]


each_input = tuple(case for value in each_object for case in _where_it_may_stand(value)) + tuple(
    ({}, {"webhooks": {**_WEBHOOKS, key: value}})
    for key in ("url", "events")
    for value in (7, True, [7], "", None)
)
_TIMES = ["poll_interval", "timeout", "max_outage", "abandon_unknown_after"]
_CHOICES = ["on_uncertain_kickoff", "validate_inputs", "on_invalid_output"]
KINDS = (
    Kind(
        "inputs and meta", st.tuples(any_inputs, any_options), what_is_written_is_json, weight=6, known=each_input
    ),
    Kind(
        "names compared",
        st.tuples(given_names, listed_names, st.booleans()),
        names_are_compared,
        weight=4,
        known=tuple(
            (given, document, strict)
            for strict in (False, True)
            for given, document in (
                ({"topics": 1}, {"inputs": ["topic", "audience", "id"]}),
                ({"topic": 1, "audience": 2}, {"inputs": ["topic", "audience", "id"]}),
                ({"topic": 1}, {"inputs": [{"name": "topic", "required": False}, "topic", "id"]}),
                ({}, {"inputs": [{"name": "id", "required": True}]}),
                ({"id": "4711", "ids": 2}, {"inputs": ["id"]}),
            )
        ),
    ),
    Kind(
        "inputs and meta of a task",
        st.tuples(
            any_inputs,
            st.none() | any_data,
            st.none() | any_data,
            st.fixed_dictionaries(
                {},
                optional={
                    "webhooks": any_webhooks,
                    "human_input_webhook_url": any_data,
                    "restore_from_state_id": st.just("4711") | any_data,
                },
            ),
        ),
        a_task_kicks_off_at_most_once,
        weight=1,
        known=tuple(
            ({}, None, None, {"webhooks": value, "restore_from_state_id": value}) for value in each_object
        ),
    ),
    Kind("secret of webhooks", any_webhooks, a_secret_goes_along, weight=2, known=each_object),
    Kind(
        "arguments of tasks",
        st.tuples(
            st.just(CrewRunOperator),
            st.fixed_dictionaries({}, optional=dict.fromkeys([*_TIMES, *_CHOICES, "output_type"], _any_argument)),
        )
        | st.tuples(
            st.just(CrewExecutionSensor),
            st.fixed_dictionaries(
                {},
                optional=dict.fromkeys(["poke_interval", "timeout", "max_outage", "output_type"], _any_argument),
            ),
        ),
        arguments_that_make_no_sense_are_refused,
        weight=1,
        known=tuple(
            (kind, {name: value})
            for kind, name in (
                (CrewRunOperator, "on_invalid_output"),
                (CrewRunOperator, "output_type"),
                (CrewExecutionSensor, "output_type"),
                (CrewExecutionSensor, "timeout"),
            )
            for value in (
                *each_object,
                "",
                "Report",
                "{{ x }}",
                "a..b",
                7,
                True,
                [],
                {},
                {"title": str},
                ["title"],
            )
        ),
    ),
)
