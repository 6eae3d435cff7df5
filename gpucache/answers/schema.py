"""The result types of each verb, and the meaning of every key: for gpucache-json(5) and the tests.

Owns which verb has which result types, and the names of results that are plain tables: a command makes
such a summary by itself and imports none of this. The annotation of a field has the meaning of its key, the
docstring of a property its, and the source of an enumeration what its words mean.
"""

import ast
import inspect as sources
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypedDict

from gpucache.answers.bench import (
    BenchCase,
    BenchSummary,
    CheckedCase,
    CheckedSummary,
    SettleRun,
    SettleSummary,
)
from gpucache.answers.devices import TargetDifference
from gpucache.answers.document import SCHEMA, Key, keys, meaning
from gpucache.answers.entries import CacheEntry, EntryReport
from gpucache.answers.evict import EvictOutcome, EvictSummary, Foreseen
from gpucache.answers.export import Exported, Layered, LayerSummary
from gpucache.answers.inspect import Advice, CacheState, Compiling, Written
from gpucache.answers.record import RecordedProgram, RecordingSummary, RecordSummary, Unrecorded
from gpucache.answers.run import Intercepted, RunSummary
from gpucache.answers.shipped import Shipped, ShippedSummary
from gpucache.answers.stats import Stats
from gpucache.answers.transfer import Pin, Pulled, PullSummary, Pushed, PushSummary
from gpucache.answers.verify import Finding, VerifySummary
from gpucache.answers.warm import FleetOutcome, FleetSummary, WarmOutcome, WarmSummary
from gpucache.answers.why import Answer, Reach
from gpucache.json_keys import json_keys
from gpucache.keys import Difference
from gpucache.model import Device


class RecordedDifference(TypedDict):
    """A key field that differs, as it was written down."""

    label: Annotated[str, "The key field."]
    left: Annotated[str | None, "Its value in the nearest entry."]
    right: Annotated[str | None, "Its value in the program that missed."]


class RecordedMiss(TypedDict):
    """A miss as it was written down."""

    kind: Annotated[str, "Always miss."]
    when_ns: Annotated[int, "When, in nanoseconds since 1970."]
    program: str
    target: str
    key: Annotated[str, "The cache key that was not found."]
    verdict: str
    detail: Annotated[str, "The verdict as a sentence."]
    differences: Annotated[list[RecordedDifference], "The differences from the nearest entry; at most 8."]
    command: Annotated[str, "The program that asked."]
    pid: Annotated[int, "Its process."]
    noted: Annotated[bool, "Whether it was left for warm --misses."]


class RecordedProcess(TypedDict):
    """The hits and misses of a process."""

    kind: Annotated[str, "Always process."]
    when_ns: Annotated[int, "When it ended, in nanoseconds since 1970."]
    command: Annotated[str, "The program."]
    pid: Annotated[int, "Its process."]
    hits: Annotated[int, "The number of hits."]
    misses: Annotated[int, "The number of misses."]
    saved_ns: Annotated[int, "How long compiling the hits took when they were built, in nanoseconds."]


class DevicesSummary(TypedDict):
    """How many targets there are."""

    targets: Annotated[int, "Targets that can be built for."]
    devices: Annotated[int, "How many of them have a device on this machine."]
    errors: Annotated[int, "Drivers and compilers that are broken."]


class DifferencesSummary(TypedDict):
    """How much two machines differ."""

    differences: Annotated[int, "How many there are."]


class CachesSummary(TypedDict):
    """The caches that were named."""

    caches: Annotated[Sequence[CacheState], "The caches that were named, without ours."]
    unread: tuple[str, ...]


@json_keys("state.* advice misses processes named.*")
class OursAmongCaches(TypedDict):
    """Our own cache with remarks, and other caches."""

    state: CacheState
    advice: Annotated[Iterable[Advice], "The problems of its keys."]
    misses: Annotated[Sequence[RecordedMiss], "The last misses, newest first."]
    processes: Annotated[Sequence[RecordedProcess], "The hits and misses of processes, newest first."]
    named: CachesSummary


@json_keys("among.* total_bytes total_stale_bytes")
class Overview(TypedDict):
    """Our own cache and third-party caches at a glance."""

    among: OursAmongCaches
    total_bytes: Annotated[int, "Bytes of all of these."]
    total_stale_bytes: Annotated[int, "How many of them no program of this machine reads again."]


class Listed(TypedDict):
    """The entries that were listed."""

    entries: int
    size_bytes: int
    unread: tuple[str, ...]


class MissesSummary(TypedDict):
    """How many misses are on record."""

    count: Annotated[int, "How many there are."]


class Extracted(TypedDict):
    """The file that an entry's bytes were written to."""

    file: str
    size_bytes: Annotated[int, "Its size."]


class WhySummary(TypedDict):
    """How many programs were examined, and would be found."""

    asked: Annotated[int, "How many programs were examined."]
    hits: Annotated[int, "How many would be found."]
    misses: Annotated[int, "How many would not."]


class EntriesCompared(TypedDict):
    """Two entries that were compared."""

    left: Annotated[str, "The key of the first."]
    right: Annotated[str, "The key of the second."]
    differences: Annotated[int, "How many there are."]


class KeySummary(TypedDict):
    """A pair of keys."""

    name: Annotated[str, "Its name for people: that of the file without its ending."]
    public: Annotated[str, "The public key as GPUCACHE_TRUSTED_KEYS takes it."]
    id: Annotated[str, "The name of the key in records: the first 16 hex digits of its SHA-256."]
    files: Annotated[Sequence[str], "The files that were written, the secret key first."]


class ExportSummary(TypedDict):
    """How much was written."""

    entries: Annotated[int, "Entries in it."]


class Answered(NamedTuple):
    """The records and the keys of the summary that one form of a command prints."""

    asked: str
    """As on the command line."""
    outcome: type | None
    meaning: str
    summary: type | None


ANSWERS = (
    Answered("devices", Device, "Devices and compilers.", DevicesSummary),
    Answered(
        "devices --compare A B",
        TargetDifference,
        "The differences that would split a cache of both machines.",
        DifferencesSummary,
    ),
    Answered("warm", WarmOutcome, "Every program for every target, with --check likewise.", WarmSummary),
    Answered(
        "warm --check --recording DIR --device-profile FILE",
        FleetOutcome,
        "Every build that any of the machines asks for.",
        FleetSummary,
    ),
    Answered("warm -- COMMAND", SettleRun, "Every run of the command.", SettleSummary),
    Answered(
        "run -- COMMAND",
        Intercepted,
        "Every build of the command, in order, on standard error or in the file of --report.",
        RunSummary,
    ),
    Answered(
        "record -- COMMAND",
        Unrecorded,
        "The builds that were not recorded, on standard error.",
        RecordSummary,
    ),
    Answered("inspect", None, "The state of our own cache is the summary.", Overview),
    Answered("inspect --cache gpucache", None, "The same without sums over all caches.", OursAmongCaches),
    Answered("inspect --cache NAME", None, "Third-party caches.", CachesSummary),
    Answered("inspect --list", CacheEntry, "Every entry.", Listed),
    Answered(
        "inspect WHAT", EntryReport, "The entries that are named; a damaged one as cache entry.", Listed
    ),
    Answered("inspect FILE", Shipped, "The compiled files that are named.", ShippedSummary),
    Answered("verify FILE", Shipped, "The same.", ShippedSummary),
    Answered("inspect --misses", RecordedMiss, "The last misses, newest first.", MissesSummary),
    Answered("inspect --stats", None, "Hits, misses and the time saved.", Stats),
    Answered("inspect URL --pins", Pin, "The pins of a store, by system.", None),
    Answered("inspect --watch", Written, "Every entry as it is written: lines, and no document.", None),
    Answered(
        "inspect --watch",
        Compiling,
        "Compiles that run for 5 s and more, once a minute: lines as well.",
        None,
    ),
    Answered("inspect --recording DIR", RecordedProgram, "Every build that was recorded.", RecordingSummary),
    Answered("inspect --why SOURCE", Answer, "Every program for every target.", WhySummary),
    Answered("inspect --why KEY KEY", Difference, "The fields in which two entries differ.", EntriesCompared),
    Answered("inspect --why --want FIELD=VALUE", Reach, "Every cache that was queried.", WhySummary),
    Answered("inspect WHAT --extract FILE", CacheEntry, "The entry whose bytes were written.", Extracted),
    Answered("verify", Finding, "The findings; empty if all is sound.", VerifySummary),
    Answered("evict --dry-run", EvictOutcome, "The entries that would be removed.", Foreseen),
    Answered("evict", EvictOutcome, "The entries that were to be removed.", EvictSummary),
    Answered("bench", BenchCase, "Every program for every target, or the command.", BenchSummary),
    Answered("bench --checks", CheckedCase, "The cost of checks inside kernels.", CheckedSummary),
    Answered("push URL", Pushed, "Every entry of the caches, or those that are named.", PushSummary),
    Answered("pull URL", Pulled, "Every entry of the store that is of the caches.", PullSummary),
    Answered("key FILE", None, "The pair of keys is the summary.", KeySummary),
    Answered("export FORMAT OUT SOURCE", Exported, "The file that was written.", ExportSummary),
    Answered(
        "export layer OUT -- COMMAND",
        Layered,
        "Every build that the command asked for, on standard error.",
        LayerSummary,
    ),
)
"""Every form of a command, with its output."""


class Document(TypedDict):
    """The document of a command that ran."""

    schema: Annotated[int, "The version, now 1. It increases when a key is removed or changes meaning."]
    command: Annotated[str, "The verb."]
    outcomes: Annotated[list[Any], "A record for each thing that the verb did or found."]
    summary: Annotated[dict[str, Any], "The whole in numbers."]


class Error(TypedDict):
    """The value of ``error`` if a command could not run; outcomes and summary are empty then."""

    message: Annotated[str, "One sentence."]
    exit_code: Annotated[int, "The exit code of the process."]


def records() -> list[type]:
    """The types of all records of documents, nested ones after the others."""
    found = [one.outcome for one in ANSWERS if one.outcome]
    held: Iterable[Key] = (key for one in ANSWERS if one.summary for key in keys(one.summary))
    for kind in (*found, *(key.form.record for key in held if key.form.record)):
        if kind not in found:
            found.append(kind)
    for kind in found:
        inner = (key.form.record for key in keys(kind))
        found += dict.fromkeys(one for one in inner if one is not None and one not in found)
    return list(dict.fromkeys(found))


def meanings(kind: type) -> Iterator[tuple[Key, str]]:
    """Every key of the records of a type, with its meaning; empty text where its field has none."""
    for key in keys(kind):
        home, name = key.home
        attribute = getattr(home, name, None)
        told = attribute.__doc__ if isinstance(attribute, property) else meaning(home, name)
        told = told or _COMMON.get(name)
        if name != key.path[-1]:
            told = f"{told} {key.path[-1]}." if told else told  # it counts a member of an enumeration
        elif key.form.words_of:
            words = ", ".join(word.value for kind_of in key.form.words_of for word in kind_of)
            told = f"{told} One of {words}." if told else told
        yield key, " ".join((told or "").split())


def words(kind: type[StrEnum]) -> Iterator[tuple[str, str]]:
    return ((word.value, _members(kind)[word.name]) for word in kind)


_COMMON = {
    "cache": "The cache's name, as --cache takes it.",
    "command": "The command.",
    "entries": "How many there are.",
    "file": "The file.",
    "program": "The program's name.",
    "result": "The outcome.",
    "size_bytes": "Their total size.",
    "target": "The target.",
    "unread": "Why not all of the caches could be read, a sentence each; exit 5.",
    "verdict": "Why it was not found.",
}
"""The meaning of keys that many records have, where a field has no docstring."""


@cache
def _members(kind: type) -> dict[str, str]:
    """The text below each member of an enumeration."""
    (made,) = ast.parse(sources.cleandoc("\n" + sources.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for member, below in pairwise(made.body):
        match member, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


assert SCHEMA == 1, "the meaning of the key schema names it"
