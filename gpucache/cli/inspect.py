"""``gpucache inspect``: a cache's contents, the reasons of misses (``--why``), and two keys compared."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpucache.caches.registry import ALL, OWN, load_system
from gpucache.cli import streams
from gpucache.cli.caches import (
    cache_option,
    finish,
    open_everywhere,
    open_named,
    require_named,
    stores_apart,
    timeout_option,
)
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import (
    AGE,
    BuildCommand,
    EntryName,
    Named,
    PathName,
    build_options,
    checks_option,
    field,
    flag,
    manifest_option,
    profile_option,
    read_programs,
    read_whole,
    require_drawable,
    valued,
    writing,
)
from gpucache.cli.shipped import show_files
from gpucache.cli.streams import complain
from gpucache.engine.selection import Opened
from gpucache.errors import CacheUnusableError, ExitCode, FormatError, SourceError, UsageError
from gpucache.host import os_errors
from gpucache.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpucache.answers.console import Block
    from gpucache.answers.entries import CacheEntry, EntryReport
    from gpucache.answers.schema import CachesSummary, EntriesCompared, Listed, WhySummary
    from gpucache.caches.interface import Cache
    from gpucache.engine.inspect import OwnContents
    from gpucache.manifest import ProgramSpec


class Asked(NamedTuple):
    """The subject of a question, and how it would be built."""

    what: tuple[str, ...]
    targets: tuple[str, ...]
    named: Named
    profile: Path | None
    wanted: tuple[str, ...] = ()
    """The fields of another system's key: ``FIELD=VALUE`` or ``FIELD=@FILE``."""


def explain(opened: Opened, asked: Asked) -> None:
    """Explain sources, programs, two keys, or requests to other caches."""

    from gpucache.engine.selection import is_key_prefix

    if asked.wanted:
        _reach(opened, asked)
        return
    if not asked.what and asked.named.manifest is None:
        raise UsageError(
            "--why needs a subject: a source, a program, --manifest FILE, or two keys to compare"
        )
    if asked.what and asked.named.manifest is not None:
        raise UsageError("sources and --manifest do not go together; give one of them")
    if len(asked.what) == 2 and all(map(is_key_prefix, asked.what)):
        _compare(opened, asked.what)
        return
    _answer(opened, asked)


def _answer(opened: Opened, asked: Asked) -> None:
    from gpucache.answers.why import answers
    from gpucache.assembly import open_stores
    from gpucache.backends.interface import Backends
    from gpucache.caches.known_caches import present_caches
    from gpucache.caches.registry import systems
    from gpucache.engine.machine import machine_for
    from gpucache.engine.why import plan_why, replies, why

    meant = [_meant(opened, word, asked) for word in asked.what] or [(read_programs(asked.named), [])]
    every = [spec for specs, _ in meant for spec in specs]
    entries = [one for _, found in meant for one in found]
    here = machine_for(every, asked.targets, asked.profile, entries)
    given().say(*here.notes)
    items = plan_why(meant, here.devices, asked.targets, Backends(), opened.own)
    settings = opened.settings._replace(read_only=True)
    stores = open_stores(settings, command="gpucache inspect", warn=complain)
    known = tuple(systems())
    folder = None  # the current directory, perhaps the program's too, unless it is gone
    with suppress(OSError):
        folder = str(Path.cwd())
    found = [
        one._replace(caches=replies(one, item, known, present_caches))
        for one, item in zip(why(items, Backends(), stores, here.environment, folder), items, strict=True)
    ]
    hits = sum(one.hit for one in found)
    given().answer(
        "inspect", found, _counted(len(found), hits), answers(found, time.time_ns(), sources=bool(every))
    )
    leave(ExitCode.DONE if hits == len(found) else ExitCode.FINDINGS)


def _counted(asked: int, hits: int) -> "WhySummary":
    return {"asked": asked, "hits": hits, "misses": asked - hits}


def _meant(opened: Opened, word: str, asked: Asked) -> "tuple[list[ProgramSpec], list[CacheEntry]]":
    """The programs read from files, or the existing entries, that a word means.

    A file or directory without a source may be named as a program is, and then the program is meant.
    """
    from gpucache.engine.why import entries_of
    from gpucache.manifest import LANGUAGES

    path = Path(word)
    if path.exists():
        manifest = path if path.suffix == ".toml" else None
        named = asked.named._replace(sources=() if manifest else (path,), manifest=manifest)
        try:
            return read_programs(named), []
        except SourceError:
            if path.suffix not in LANGUAGES and not asked.named.builds:
                with suppress(UsageError):
                    return [], entries_of(opened.require_own("--why with a program"), word, asked.targets)
            raise
    if asked.named.builds:
        raise UsageError(
            f"-I, -D, --option, --name-expression and --local-size are for sources, and there is no file "
            f"{word!r}; an entry is looked up as it was built"
        )
    return [], entries_of(opened.require_own("--why with a program"), word, asked.targets)


def _compare(opened: Opened, keys: Sequence[str]) -> None:
    from gpucache.answers.why import comparison
    from gpucache.engine.why import compare
    from gpucache.keys import difference

    left, right = (opened.report(key) for key in keys)
    differences = difference(left.compared, right.compared)
    summary: EntriesCompared = {
        "left": left.entry.key,
        "right": right.entry.key,
        "differences": len(differences),
    }
    given().answer(
        "inspect", differences, summary, comparison(left.entry.key, right.entry.key, compare(left, right))
    )


def _reach(opened: Opened, asked: Asked) -> None:
    from gpucache.answers.why import reaches

    if asked.what or asked.named.anything or asked.targets:
        raise UsageError("--want queries other caches by their key fields; leave sources and options out")
    wanted: dict[str, tuple[bytes, ...]] = {}
    for text in asked.wanted:
        label, value = field("--want", text, " or FIELD=@FILE")
        wanted[label] = (*wanted.get(label, ()), _value(value))
    found = [reach for cache in opened.caches for reach in cache.explain(wanted)]
    hits = sum(one.hit for one in found)
    given().answer("inspect", found, _counted(len(found), hits), reaches(found))
    leave(ExitCode.DONE if hits else ExitCode.FINDINGS)


def _value(text: str) -> bytes:
    if not text.startswith("@"):
        return os.fsencode(text)
    try:
        return read_whole(Path(text[1:]))
    except OSError as error:
        raise os_errors.unreadable(text[1:], error, "name a file after @") from None


MISSES_SHOWN = 10
_OF_ALL = ("--misses", "--watch", "--plot", "--recording", "--stats")


@click.command(cls=BuildCommand)
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=EntryName())
@cache_option
@timeout_option
@flag("--list list_all", "Show every entry.")
@flag("--watch", "Print the entries of any cache as they are written.")
@flag("--pins", "Show the pins of a store, which push --pin sets.")
@flag("--misses", "Show the last misses and their reasons.")
@flag(
    "--stats",
    "Show hits, misses by reason, and the time saved.\f"
    "Show hits, misses by reason and the compile time of hits, by program and by day.",
)
@flag("--zero", "With --stats: count from now on.")
@valued("--since", "A", AGE, "With --misses: only those of the last 1h, 30d, ...")
@flag(
    "--why",
    "Say whether WHAT would hit, and if not why.\f"
    "Say whether WHAT (sources or programs) would hit, and if not why; or compare two keys.",
)
@click.option(
    "--want",
    "wanted",
    metavar="FIELD=VALUE",
    multiple=True,
    help="With --why and --cache: a field of the key.\f"
    "With --why and --cache: a key field of the program's request; FIELD=@FILE reads it from "
    "a file; repeatable.",
)
@click.option(
    "--extract", metavar="FILE", type=PathName(dir_okay=False),
    help="Write the binary of the one entry that WHAT names.",
)  # fmt: skip
@click.option(
    "--plot", metavar="FILE", type=PathName(dir_okay=False),
    help="Draw size, hits and misses by day: .png, .svg or .pdf.\f"
    "Draw the growth of gpucache's own cache, and its hits and misses, by day: .png, .svg or .pdf "
    "(extra: plot).",
)  # fmt: skip
@valued("--recording", "DIR", PathName(file_okay=False), "Show what 'gpucache record -o DIR' wrote.")
@manifest_option
@build_options
@checks_option
@profile_option
@global_options
def inspect(
    what: tuple[str, ...],
    cache: tuple[str, ...],
    list_all: bool,
    watch: bool,
    pins: bool,
    misses: bool,
    stats: bool,
    zero: bool,
    since: int | None,
    why: bool,
    wanted: tuple[str, ...],
    extract: Path | None,
    plot: Path | None,
    recording: Path | None,
    named: Named,
    targets: tuple[str, ...],
    profile: Path | None,
) -> None:
    """Show every cache, its last misses and its problems; or the entries that WHAT names.

    WHAT is a program, a target, the first digits of a key, the URL of a store, or a compiled file (.so,
    .pt2, .vmfb, .engine). --why takes the options of warm, and exits with 3 for a miss.

    \f
    A single entry is shown with all its key fields, a compiled file with the GPUs that it has code for (exit
    3 if --device-profile has none of them), a mega-cache of PyTorch with its artifacts.

    Without arguments every cache has a line, the largest first. Stale entries are totalled, with the command
    that removes them. Entries whose compiler or reader was used within 30 days are never called stale.
    Drivers are queried only for devices whose entries two toolchains built. --list writes
    every row, on a terminal and into a pipe; pipe it to head for fewer.

    --watch prints a line (with --json an object) for each entry that is written from now on, and (on Linux)
    once a minute for each compile that has run for 5 seconds under a lock: its process, command, duration and
    lock. It relies on the system's notice of changed files, so it misses what other machines write to a
    shared directory, and names the writer only while that has the file open.

    For other caches --why takes the key fields from --want. A cache in a default place is shown as
    not used if a variable moves its programs elsewhere.
    """
    if what and not (why or cache) and show_files("inspect", what, profile):
        return
    ways = {"--why": why, "--list": list_all, "--misses": misses, "--extract": extract, "--watch": watch}
    ways |= {"--pins": pins, "--plot": plot, "--recording": recording, "--stats": stats}
    says_how = bool(named.anything or profile or wanted)
    _refuse_contradictions(ways, since, names=bool(what or targets), says_how=says_how)
    if _shown_whole(cache, watch=watch, plot=plot, recording=recording, stats=stats, zero=zero):
        return
    what, cache = stores_apart(what, cache)
    if pins:
        _show_pins(cache)
    if not (cache or why or extract or misses or what or targets or list_all):
        _show_everything()
        return
    opened = _opened(cache, why=why)
    if why:
        explain(opened, Asked(what, targets, named, profile, wanted))
    elif extract is not None:
        _extract(opened, what, targets, extract)
    elif misses:
        _misses(opened, since)
    elif what or targets or list_all:
        _show_entries(opened, what, targets)
    else:
        _show_states(opened)
    finish(opened, 0)


def _shown_whole(
    cache: tuple[str, ...],
    *,
    watch: bool,
    plot: Path | None,
    recording: Path | None,
    stats: bool,
    zero: bool,
) -> bool:
    """Show a recording, misses, pins, totals or a watch if requested; a plot is only drawn besides."""
    if (zero or given().format == "prometheus") and not stats:
        raise UsageError(f"{'--zero' if zero else '--format prometheus'} is for counters; add --stats")
    if watch:
        _show_written(cache)
    elif plot is not None:
        _plot(cache, plot)
    elif recording is not None:
        if cache:
            raise UsageError("--recording shows a recording, and not a cache; leave --cache out")
        _show_recording(recording)
    elif stats:
        _stats(_opened(cache, why=False), zero=zero)
    return watch or stats or recording is not None


def _opened(names: tuple[str, ...], *, why: bool) -> Opened:
    """The caches that are named; a root that does not exist yet serves only ``--why``."""
    opened = open_named(names)
    if not why and (ALL in names or not names):
        require_named(opened, tuple(filter(ALL.__eq__, names)), may_begin=True)
    return opened


def _refuse_contradictions(
    ways: "Mapping[str, object]", since: int | None, *, names: bool, says_how: bool
) -> None:
    if says_how and not ways["--why"]:
        raise UsageError(
            "--manifest, -I, -D, --option, --name-expression, --local-size, --device-profile and --want say "
            "how to ask; add --why"
        )
    given_ways = [option for option, asked_for in ways.items() if asked_for]
    if len(given_ways) > 1:
        raise UsageError(f"{' and '.join(given_ways)} ask for different outputs; give one of them")
    if names and given_ways and given_ways[0] in _OF_ALL:
        raise UsageError(f"{given_ways[0]} is for all programs; leave WHAT and --target out")
    if since is not None and not ways["--misses"]:
        raise UsageError("--since bounds the misses that are shown; add --misses")


def _show_states(opened: Opened) -> None:
    """Show the state of every cache that was named, each with how it is moved and traced."""
    from gpucache.answers import inspect as text
    from gpucache.engine.inspect import own_contents, state_of

    if all(cache.location().role == "store" for cache in opened.caches):
        found = [state_of(cache) for cache in opened.caches]
        given().answer("inspect", (), {"caches": found, "unread": opened.unread}, text.overview(found))
        return
    own = opened.own
    ours = None if own is None else own_contents(own)
    rest = [cache for cache in opened.caches if cache is not own]
    # A cache named by its place is shown alone; unused places are shown for named systems.
    if names := {one.name for one in rest if one.location().decided_by != "--cache"} - {OWN}:
        from gpucache.caches.known_caches import unused_caches

        rest += unused_caches(os.environ, names)
    states = [state_of(cache) for cache in rest]
    named: CachesSummary = {"caches": states, "unread": opened.unread}
    given().answer("inspect", (), {**_document(ours), **named}, text.state(ours.state) if ours else [])
    given().show(block for one in states if one.location.cache == OWN for block in ("", *text.state(one)))
    if ours:
        given().show([*text.advice(ours.advice), "", *_records(ours)])
    for number, one in enumerate(each for each in states if each.location.cache != OWN):
        system = load_system(one.location.cache)
        isolation = system.isolation(Path("DIR"))
        told = text.foreign_state(one, isolation.environment, system.tracing, isolation.lacking)
        given().show([""] * bool(number or ours) + [*told])


def _show_everything() -> None:
    """Show our own cache and all others at a glance; the others also if ours has no usable place."""
    from gpucache.answers import inspect as text
    from gpucache.caches.known_caches import found_caches, unused_caches
    from gpucache.engine.inspect import foreign_state, overview
    from gpucache.engine.machine import toolchains_for

    others, unused = found_caches(os.environ), unused_caches(os.environ)
    try:
        opened = open_named(())
    except CacheUnusableError:
        # A reader that closed the pipe early still gets the error; rich turns its own into SystemExit.
        with suppress(BrokenPipeError, SystemExit):
            given().show(text.overview([foreign_state(cache) for cache in [*others, *unused]]))
        streams.refusal()
        raise
    require_named(opened, (), may_begin=True)
    found = overview(opened, others, unused, toolchains_for)
    told = {**_document(found.own), "caches": found.states, **found.sums, "unread": opened.unread}
    given().answer("inspect", (), told, text.overview(found.every))
    given().show([*text.advice(found.own.advice), "", *_records(found.own)])
    finish(opened, 0)


def _document(ours: "OwnContents | None") -> dict[str, Any]:
    if ours is None or not given().json:
        return {}
    from gpucache.answers.document import json_of

    misses, processes = ours.misses[: _shown()], ours.processes[: _shown()]
    return {**json_of(ours.state), "advice": list(ours.advice), "misses": misses, "processes": processes}


def _records(ours: "OwnContents") -> "Iterator[Block]":
    from gpucache.answers import inspect as text

    now_ns = time.time_ns()
    brief = "" if given().verbose else ours.state.location.root
    yield from text.misses(ours.misses, now_ns, noted=ours.noted, most=_shown(), brief=brief)
    yield from text.processes(ours.processes, now_ns, _shown())


def _shown() -> int | None:
    return None if given().verbose else MISSES_SHOWN


def _show_pins(names: tuple[str, ...]) -> None:
    from gpucache.answers import transfer as text
    from gpucache.remote.contents import StoredCache

    stored = [cache for cache in open_named(names).caches if isinstance(cache, StoredCache)]
    if not stored:
        raise UsageError("--pins shows the pins of a store; name it by its URL")
    found = sorted(pin for cache in stored for pin in cache.pins)
    given().answer("inspect", found, {}, text.pins(found))
    leave(0)


def _misses(opened: Opened, since: int | None) -> None:
    from gpucache.answers import inspect as text
    from gpucache.engine.inspect import MISSES_KEPT, recent_misses

    oldest = 0 if since is None else time.time_ns() - since
    store = opened.require_own("--misses").store
    found = recent_misses(store.journal_tail(MISSES_KEPT), oldest)
    most = None if given().verbose or since is not None else MISSES_SHOWN
    given().answer(
        "inspect",
        found,
        {"count": len(found)},
        text.misses(found, time.time_ns(), noted=store.missed.count(), most=most),
    )


def _show_entries(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]) -> None:
    """Show the entries that words and targets name; a single one is shown whole."""
    from gpucache.answers import inspect as text

    if not what:
        _show_every(opened, targets)
        return
    found = _found(opened, what, targets)
    sizes = [entry.size_bytes for _, entry in found]
    summary: Listed = {"entries": len(sizes), "size_bytes": sum(sizes), "unread": opened.unread}
    if len(found) == 1:
        [(cache, entry)] = found
        one = cache.report(entry)
        given().answer("inspect", [one], summary, text.report(one, whole=given().whole))
        return
    given().document("inspect", (_whole(cache, entry) for cache, entry in found), summary)
    named = [(_name(opened, cache), entry) for cache, entry in found]
    given().show(text.entries(named, time.time_ns(), whole=given().whole))


def _show_every(opened: Opened, targets: tuple[str, ...]) -> None:
    """Show all entries, and keep no more of each than is shown, because there may be 100,000."""
    from gpucache.answers import inspect as text

    every = ((cache, entry) for cache, entries in opened.select((), targets) for entry in entries)
    summary: Listed = {"entries": 0, "size_bytes": 0, "unread": ()}

    def counted() -> "Iterator[CacheEntry]":
        for _, entry in every:
            summary["entries"] += 1
            summary["size_bytes"] += entry.size_bytes
            yield entry
        summary["unread"] = opened.unread

    given().document("inspect", counted(), summary)
    named = ((_name(opened, cache), entry) for cache, entry in every)
    given().show(text.entries(named, time.time_ns(), whole=given().whole))


def _stats(opened: Opened, *, zero: bool) -> None:
    """Show the totals of our own cache, and with ``zero`` count from now on."""
    from gpucache.answers import stats as text
    from gpucache.engine.inspect import state_of
    from gpucache.settings import settings_files
    from gpucache.store.root_file import is_root_file

    own = opened.require_own("--stats")
    if is_root_file(Path(own.location().root)):
        raise UsageError("a cache in a file has no counters; --stats is for one in a directory")
    if zero and opened.settings.read_only:
        raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is counted anew; unset it")
    state, records = state_of(own), own.store.journal_records()
    found = text.stats(records)._replace(
        entries=state.entries,
        size_bytes=state.size_bytes,
        limit_bytes=state.location.limit_bytes,
        root=state.location.root,
        settings_files={str(path): exists for path, exists in settings_files().items()},
    )
    if given().format == "prometheus":
        click.echo("\n".join(text.prometheus(found)))
    else:
        given().answer("inspect", (), found, text.stats_text(found, time.time_ns()))
    if zero:
        own.store.journal({"kind": text.ZERO, "when_ns": time.time_ns()})
        given().say("These were the numbers so far; they are counted anew from now on.")


def _extract(opened: Opened, what: tuple[str, ...], targets: tuple[str, ...], file: Path) -> None:
    """Write the artifact of one entry to a file; raises UsageError unless exactly one is named."""
    from gpucache.units import format_size

    found = _found(opened, what, targets) if what else []
    if len(found) != 1:
        keys = ", ".join(entry.key[:12] for _, entry in found[:8])
        raise UsageError(
            f"--extract needs one entry, and {len(found)} are named{f' ({keys})' if keys else ''}; "
            "give the key of one"
        )
    [(cache, entry)] = found
    payload = cache.extract(entry)
    with writing(file):
        try:
            with file.open("xb") as out:
                out.write(payload)
        except FileExistsError:
            raise UsageError(f"{file} exists and is not overwritten; name another file") from None
        except OSError:
            with suppress(OSError):  # nothing may have been made
                file.unlink()
            raise
    given().document("inspect", [entry], {"file": str(file), "size_bytes": len(payload)})
    given().say(f"{file}: {entry.artifact_kind}, {format_size(len(payload))}")


def _plot(names: Sequence[str], file: Path) -> None:
    """Draw our own cache; raises UsageError, before anything is read, for a file that cannot be written."""
    from gpucache.answers.bench_export import PLOTS
    from gpucache.answers.inspect_plot import plot
    from gpucache.engine.inspect import MISSES_KEPT

    require_drawable("--plot", file, PLOTS)
    own = open_named(names).require_own("--plot")
    content = plot(own.scan(), own.store.journal_tail(MISSES_KEPT), time.time_ns(), file.suffix.lower()[1:])
    with writing(file):
        file.write_bytes(content)
    given().say(f"Written to {file}.")


def _name(opened: Opened, cache: "Cache") -> str:
    """The words that distinguish a cache from the others shown with it; empty if there are no others."""
    if len(opened.caches) == 1:
        return ""
    place = cache.location()
    return f"{cache.name} in {place.root}" if place.role else cache.name


def _found(
    opened: Opened, what: tuple[str, ...], targets: tuple[str, ...]
) -> "list[tuple[Cache, CacheEntry]]":
    return [(cache, entry) for cache, entries in opened.select(what, targets) for entry in entries]


def _whole(cache: "Cache", entry: "CacheEntry") -> "EntryReport | CacheEntry":
    """An entry with its key fields, or with its damage: one damaged entry does not hide the others."""
    from gpucache.answers.entries import Problem

    try:
        return cache.report(entry)
    except FormatError as error:
        return entry._replace(damage=Problem(None, str(error)))


_DAMAGED_LINES_TOLD = 5


def _show_recording(folder: Path) -> None:
    """Show the contents of a recording; raises SourceError if the directory is not one."""
    from gpucache.answers.record import recording, summarise_recording
    from gpucache.engine.recorded_requests import recorded_programs
    from gpucache.recording.reading import read_recording

    found = read_recording(folder)
    rows = recorded_programs(found)
    summary = summarise_recording(rows, found.damage)
    given().answer("inspect", rows, summary, recording(rows, summary, whole=given().whole))
    for one in found.damage[:_DAMAGED_LINES_TOLD]:
        complain(f"gpucache: {one.place} of the recording is passed over: {one.why}")
    if len(found.damage) > _DAMAGED_LINES_TOLD:
        more = format_count(len(found.damage) - _DAMAGED_LINES_TOLD, "more line is", "more lines are")
        complain(f"gpucache: {more} passed over")


def _show_written(names: Sequence[str]) -> None:
    """Show writes to the named caches, or to all, until an interrupt or until the reader is gone."""
    from gpucache.answers import inspect as text
    from gpucache.engine.inspect import watch

    told: set[tuple[str, str, str]] = set()  # entries, each of which may have several lines

    def find() -> "Sequence[Cache]":
        return open_named(names).caches if names else open_everywhere()

    def started(caches: int) -> None:
        given().say(f"watching {format_count(caches, 'cache')}; press Ctrl-C to stop")

    try:
        for one in watch(find, started, streams.unread, locks=True):
            if isinstance(one, text.Written):
                told.add((one.entry.cache, one.root, one.entry.key))
            if given().json:
                from gpucache.answers.document import line_of

                click.echo(line_of(one))
            given().show([text.written(one) if isinstance(one, text.Written) else text.compiling(one)])
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{format_count(len(told), 'entry was', 'entries were')} written") from None
