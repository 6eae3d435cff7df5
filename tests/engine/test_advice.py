"""Advice from the keys of a cache: bytes kept twice, keys that never repeat, entries no program reads."""

import tracemalloc
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import Advice, AdviceKind
from gpucache.engine.inspect import (
    GROWTH_ENTRIES,
    PROGRAMS_READ,
    TWINS_READ,
    UNREAD_NS,
    Traces,
    advise_on,
    looks_like,
)
from gpucache.model import KeyField


@dataclass(slots=True)
class Cache:
    """Entries with key fields; counts how often those are read."""

    entries: list[CacheEntry] = field(default_factory=list)
    known: dict[str, Sequence[KeyField]] = field(default_factory=dict)
    reads: int = 0

    def add(
        self, fields: Mapping[str, str], *, payload: str = "", program: str = "k.cl", used: bool = False
    ) -> None:
        number = len(self.entries) + 1
        key = f"{number:064x}"
        self.entries.append(
            CacheEntry(
                cache="gpucache",
                key=key,
                path="",
                size_bytes=1,
                created_ns=number,
                last_used_ns=number + used,
                program=program,
                target="opencl:pocl",
                payload_sha256=payload or f"{number:032x}",
            )
        )
        self.known[key] = [KeyField(label, value) for label, value in fields.items()]

    def fields(self, key: str) -> Sequence[KeyField]:
        self.reads += 1
        return self.known[key]

    def advice(self, kind: AdviceKind | None = None) -> list[Advice]:
        traces = Traces()
        for _ in traces.of(reversed(self.entries)):
            pass
        return [one for one in advise_on(traces, self.fields, UNREAD_NS + 10) if kind in (None, one.kind)]


def _filled(label: str, values: Iterable[str], *, used: bool = False) -> Cache:
    cache = Cache()
    for value in values:
        cache.add({"language": "opencl-c", label: value}, used=used)
    return cache


def test_identical_bytes_name_the_field_that_did_not_matter() -> None:
    """Two keys with the same artifact are reported with the field in which they differ."""
    cache = Cache()
    cache.add({"source": "a", "option": "-DUNUSED=1"}, payload="same")
    cache.add({"source": "a", "option": "-DUNUSED=2"}, payload="same")
    cache.add({"source": "b", "option": "-DUNUSED=2"}, payload="other")
    (told,) = cache.advice(AdviceKind.IDENTICAL)
    assert (told.program, told.fields) == ("k.cl", ("option",))
    assert told.keys == tuple(entry.key for entry in cache.entries[:2])
    assert told.detail.startswith("2 entries have the same bytes") and told.detail.endswith(": option")


def test_the_same_bytes_of_two_programs_are_no_advice() -> None:
    """Only builds of one program are compared."""
    cache = Cache()
    cache.add({"source": "a"}, payload="same", program="a.cl")
    cache.add({"source": "b"}, payload="same", program="b.cl")
    assert cache.advice(AdviceKind.IDENTICAL) == []


@pytest.mark.parametrize(
    ("look", "values"),
    [
        ("an address", [f"-DP=0x7f12{number}0000" for number in range(4)]),
        ("a path below a home directory", [f"-I/home/alice/build{number}" for number in range(4)]),
        ("a path below a temporary directory", [f"-I/tmp/tmp{letters}" for letters in "abcd"]),
        ("a process number", ["-DPID=4711", "-DPID=4712", "-DPID=4799", "-DPID=5000"]),
        ("a date or time", [f"-DBUILT=2026-01-0{day}" for day in range(1, 5)]),
        ("a date or time", [f"-DBUILT=170000000{second}.5" for second in range(4)]),
        ("a random name", [f"-DRUN={number:08x}-0000-4000-8000-0123456789AB" for number in range(4)]),
    ],
)
def test_a_key_that_changes_at_every_build_is_told_with_its_look(look: str, values: list[str]) -> None:
    """The field that differs in each of the last builds is named, with the kind of its values."""
    (told,) = _filled("option", [f"-O2 {value}" for value in values]).advice(AdviceKind.RESTLESS)
    assert told.fields == ("option",)
    assert told.detail == (
        f"its key changes with every build, by option, which looks like {look} ({values[-1]})"
    )


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(["-DB=1234", "-DB=1235", "-DB=1236"], id="too few"),
        pytest.param(["-DB=1234", "-DB=1235", "-DB=1236", "-DB=1234"], id="comes back"),
        pytest.param(["-DB=1234", "-DB=1235", "-DB=1235", "-DB=1236"], id="stands still"),
        pytest.param(["-DBLOCK=64", "-DBLOCK=128", "-DBLOCK=256", "-DBLOCK=512"], id="sweep of sizes"),
        pytest.param(["-DA", "-DB", "-DC", "-DD"], id="chosen"),
    ],
)
def test_values_that_people_choose_are_not_restless(values: list[str]) -> None:
    """Few builds, values that come back, and a sweep over sizes or switches are no advice."""
    assert _filled("option", values).advice(AdviceKind.RESTLESS) == []


def test_a_key_that_was_hit_is_not_restless() -> None:
    """If the entries were used again their keys did come back."""
    values = [f"/tmp/{letter}" for letter in "abcde"]
    assert _filled("environment X", values, used=True).advice(AdviceKind.RESTLESS) == []
    assert len(_filled("environment X", values).advice(AdviceKind.RESTLESS)) == 1


def test_a_digest_is_named_by_its_field_alone() -> None:
    """A source that differs at every build is reported without its digest."""
    cache = _filled("source", (f"{number:064x}" for number in range(4)))
    (told,) = cache.advice(AdviceKind.RESTLESS)
    assert told.detail == "its key changes with every build, by source"


def test_nothing_looks_like_no_values() -> None:
    """An empty list of values has no look, and neither do values of two kinds."""
    assert looks_like([]) == looks_like(["/tmp/a", "0x7f1234567"]) == ""


def test_growth_that_nobody_hits_is_told() -> None:
    """Many entries of which none was ever hit are growth; one hit, or fewer, make them unread entries."""
    values = [str(number) for number in range(GROWTH_ENTRIES)]
    (told,) = _filled("source", values).advice(AdviceKind.GROWTH)
    assert told.detail == f"{GROWTH_ENTRIES} entries and none was ever hit: it grows without use"
    assert _filled("source", values[1:]).advice(AdviceKind.GROWTH) == []
    hit = _filled("source", values[1:])
    hit.add({"source": "x"}, used=True)
    assert hit.advice(AdviceKind.GROWTH) == []


def test_what_was_warmed_and_never_read_is_told() -> None:
    """Entries never read since they were made are counted and named; read ones are not."""
    cache = _filled("source", "a")
    cache.add({"source": "b"}, used=True)
    (told,) = cache.advice(AdviceKind.UNREAD)
    assert told.detail == "1 of 2 entries were not read in the 30 days since they were made"
    assert told.keys == (cache.entries[0].key,)
    cache.entries[0] = cache.entries[0]._replace(created_ns=UNREAD_NS, last_used_ns=UNREAD_NS)
    assert cache.advice(AdviceKind.UNREAD) == []
    assert _filled("source", "ab", used=True).advice(AdviceKind.UNREAD) == []


def test_what_readers_without_a_trace_may_hit_is_not_told() -> None:
    """Where no use shows, as in a root that is only read, nothing says that an entry is unused."""
    assert _filled("source", "ab").advice(AdviceKind.UNREAD) == []
    shared = _filled("source", map(str, range(GROWTH_ENTRIES)))
    shared.add({"source": "x"}, used=True)
    shared.entries = [one._replace(uses_show=False) for one in shared.entries]
    assert shared.advice() == []


def test_entries_of_a_file_whose_uses_of_that_day_are_not_kept_are_not_told() -> None:
    """They come with a time before they were made, hit or not."""
    unpacked = _filled("source", map(str, range(GROWTH_ENTRIES)))
    unpacked.entries = [one._replace(last_used_ns=one.created_ns - 1) for one in unpacked.entries]
    assert unpacked.advice() == []


def test_few_key_fields_are_read_however_many_entries_there_are() -> None:
    """Reads are bounded over programs, and over the sets of twins of one program."""
    many = Cache()
    for program in range(PROGRAMS_READ + 20):
        for number in range(5):
            many.add({"source": str(number)}, program=f"{program}.cl")
    many.advice(AdviceKind.UNREAD)
    assert 0 < many.reads <= PROGRAMS_READ * 4
    twins = Cache()
    for number in range(400):
        twins.add({"source": str(number)}, payload=str(number // 2), used=True)
    assert len(twins.advice(AdviceKind.IDENTICAL)) == TWINS_READ
    assert twins.reads <= 2 * TWINS_READ


def test_of_many_entries_some_bytes_of_each_are_kept() -> None:
    """A cache of a million entries fits: only times, key and facts of the payload are kept of each."""
    cache = Cache()
    cache.add({"source": "a"})
    [one] = cache.entries
    traces = Traces()
    tracemalloc.start()
    try:
        every = (
            one._replace(key=f"{number:064x}", payload_sha256=f"{number:064x}") for number in range(10_000)
        )
        deque(traces.of(every), maxlen=0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100 * 10_000
    ((program, target, own),) = traces.largest()
    assert (program, target, len(own)) == (one.program, one.target, 10_000)
