"""The contents of caches: their states, and the records of our own. Does not change the times of last use.

Advice names key fields that do not matter, and keys that never repeat. It compares the many entries of one
program. Keeps a few numbers of each entry, and reads the key fields of a bounded number.

A watch reports entries as programs write them. The library ``watchfiles`` reports where something was written
(inotify on Linux), and the cache itself finds the entries there: it is scanned again, so that a burst of
writes of one entry is one. A place that does not exist yet is waited for. The writer is named only if a
process still has a file of the entry open for writing. Must not know any system, or how a result is shown.
"""

import os
import re
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.inspect import Advice, AdviceKind, CacheState, Compiling, Written
from gpucache.caches.interface import Cache, OwnRoot
from gpucache.engine.selection import Opened
from gpucache.engine.staleness import Ask, Origins
from gpucache.errors import FormatError, GpucacheError, UsageError
from gpucache.model import KeyField
from gpucache.units import format_count

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

    from gpucache.keys import Difference


Fields = Callable[[str], Sequence[KeyField]]
"""Reads the key fields of an entry by its key; empty if they cannot be read."""

RESTLESS_STEPS = 3
"""How many keys in a row must differ in one field before we say that it changes at every build."""
UNREAD_NS = 30 * 86_400 * 10**9
"""The age from which an entry that was never read is reported."""
GROWTH_ENTRIES = 8
"""How many entries of a program, none ever hit, count as growth."""
PROGRAMS_READ = 50
"""The number of programs whose key fields are read: the ones with the most entries."""
TWINS_READ = 4
"""The number of sets of equal entries of a program whose key fields are read, the largest first."""
_NOT_TOLD = frozenset({"resolution of includes"})
# People change these on purpose, so they are reported only if the values look made by a machine.
_CHOSEN = frozenset({"option", "checks", "local size", "name expression"})
_DIGEST = r"[0-9a-f]{64}"
_LOOKS = (
    ("an address", r"0x[0-9a-fA-F]{6,}"),
    ("a random name", r"(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    ("a date or time", r"\b(19|20)\d\d-?[01]\d-?[0-3]\d|\b\d\d:\d\d:\d\d\b|\b1[5-9]\d{8}(\.\d+)?\b"),
    ("a path below a temporary directory", r"(/var)?/tmp/|/T/tmp|/run/user/|\\Temp\\"),
    ("a path below a home directory", r"/home/[^/\s]+|/root/|/Users/[^/\s]+|C:\\Users\\"),
)
_NUMBER = r"(?<![\w.])\d{2,7}(?![\w.])"


_PACKED = struct.Struct(">Q?32sq")
"""An entry in 49 bytes until all have been read, as there may be a million."""


class _Trace(NamedTuple):
    created_ns: int
    was_read: bool
    """Whether it was read since it was made, or may have been."""
    digest: bytes
    payload: int
    """A hash of its payload's digest, by which entries of one program with equal bytes are found."""

    @property
    def key(self) -> str:
        return self.digest.hex()


class Traces:
    """A few numbers of every entry of our own cache, by program and target."""

    def __init__(self) -> None:
        self._programs: defaultdict[tuple[str, str], bytearray] = defaultdict(bytearray)
        self.shows_use = False
        """Whether any entry was read since it was made; if none was, reads may leave no trace."""

    def of(self, entries: Iterable[CacheEntry]) -> Iterator[CacheEntry]:
        """Passes entries through, one by one, and keeps a trace of each."""
        for entry in entries:
            if entry.program and not entry.damage:
                made, key = entry.created_ns, bytes.fromhex(entry.key)
                # A cache in a file keeps the days of uses alone: the time is then before the making.
                was_read, may_be = entry.last_used_ns > made, entry.last_used_ns != made
                self.shows_use |= was_read and entry.uses_show
                self._programs[entry.program, entry.target] += _PACKED.pack(
                    made, may_be or not entry.uses_show, key, hash(entry.payload_sha256)
                )
            yield entry

    def largest(self) -> Iterator[tuple[str, str, list[_Trace]]]:
        """Each program and target with its traces, oldest first; the one with the most traces first."""
        for (program, target), own in sorted(
            self._programs.items(), key=lambda item: (-len(item[1]), item[0])
        ):
            yield program, target, sorted(map(_Trace._make, _PACKED.iter_unpack(own)))


def advise_on(traces: Traces, fields: Fields, now_ns: int) -> Iterator[Advice]:
    """Advice about a cache, from the traces of its entries."""
    oldest_ns = now_ns - UNREAD_NS
    for number, (program, target, own) in enumerate(traces.largest()):
        if number < PROGRAMS_READ and len(own) > 1:
            yield from _twins(program, target, own, fields)
            yield from _restless(program, target, own, fields)
        yield from _unread(program, target, own, oldest_ns, shows_use=traces.shows_use)


def looks_like(values: Sequence[str]) -> str:
    """The kind of a value that never repeats, such as an address; empty for any other value."""
    for name, pattern in _LOOKS:
        if values and all(re.search(pattern, value) for value in values):
            return name
    numbers = [re.findall(_NUMBER, value) for value in values]
    if numbers and all(numbers) and any(int(number) % 8 for of_one in numbers for number in of_one):
        return "a process number"  # multiples of 8 alone are rather the block sizes of a parameter sweep
    return ""


def _twins(program: str, target: str, own: Sequence[_Trace], fields: Fields) -> Iterator[Advice]:
    """Entries with the same bytes under different keys: the field that differs did not matter."""
    from gpucache.keys import difference

    same: dict[int, list[_Trace]] = defaultdict(list)
    for trace in own:
        same[trace.payload].append(trace)
    sets = sorted((twins for twins in same.values() if len(twins) > 1), key=len, reverse=True)
    for twins in sets[:TWINS_READ]:
        labels = _labels(difference(fields(twins[0].key), fields(twins[-1].key)))
        named = ", ".join(labels) or "nothing that can be read"
        text = (
            f"{len(twins)} entries have the same bytes; the difference of their keys did not matter: {named}"
        )
        keys = tuple(trace.key for trace in twins)
        yield Advice(AdviceKind.IDENTICAL, program, target, text, tuple(labels), keys)


def _restless(program: str, target: str, own: Sequence[_Trace], fields: Fields) -> Iterator[Advice]:
    """Fields that differ in each of the latest entries, so that no key comes back.

    Of these entries only the newest may have been hit, as a hit means that its key came back.
    """
    latest = own[-RESTLESS_STEPS - 1 :]
    if len(latest) <= RESTLESS_STEPS or any(trace.was_read for trace in latest[:-1]):
        return
    from gpucache.keys import difference

    steps = [difference(one, other) for one, other in pairwise([fields(trace.key) for trace in latest])]
    always = [
        label
        for label in _labels(steps[0])
        if all(label in _labels(step) for step in steps) and _is_told(label, _values(label, steps))
    ]
    if always:
        told = ", ".join(_described(label, _values(label, steps)) for label in always)
        keys = tuple(trace.key for trace in latest)
        text = f"its key changes with every build, by {told}"
        yield Advice(AdviceKind.RESTLESS, program, target, text, tuple(always), keys)


def _unread(
    program: str, target: str, own: Sequence[_Trace], oldest_ns: int, *, shows_use: bool
) -> Iterator[Advice]:
    """Entries unread for 30 days, if others were read: otherwise uses may leave no trace."""
    unread = [trace for trace in own if not trace.was_read]
    keys = tuple(trace.key for trace in unread)
    if len(own) >= GROWTH_ENTRIES and len(unread) == len(own):
        text = f"{len(own)} entries and none was ever hit: it grows without use"
        yield Advice(AdviceKind.GROWTH, program, target, text, (), keys)
    elif shows_use and (old := [trace for trace in unread if trace.created_ns < oldest_ns]):
        keys = tuple(trace.key for trace in old)
        text = f"{len(old)} of {len(own)} entries were not read in the 30 days since they were made"
        yield Advice(AdviceKind.UNREAD, program, target, text, (), keys)


def _labels(differences: "Iterable[Difference]") -> list[str]:
    return [item.label for item in differences if item.label not in _NOT_TOLD]


def _is_told(label: str, values: Sequence[str]) -> bool:
    return len(set(values)) == len(values) and bool(label not in _CHOSEN or looks_like(_changing(values)))


def _values(label: str, steps: "Sequence[Sequence[Difference]]") -> list[str]:
    told = [item for step in steps for item in step if item.label == label]
    return [told[0].left or "", *(item.right or "" for item in told)]


def _described(label: str, values: Sequence[str]) -> str:
    """A field with the part of its value that changes, unless that is a digest, which people cannot read."""
    changing = _changing(values)
    if re.fullmatch(_DIGEST, values[-1]):
        return label
    look = looks_like(changing)
    return f"{label}, which looks like {look} ({changing[-1]})" if look else f"{label} ({changing[-1][:40]})"


def _changing(values: Sequence[str]) -> list[str]:
    common = set(values[0].split()).intersection(*(value.split() for value in values[1:]))
    return [" ".join(word for word in value.split() if word not in common) or value for value in values]


Record = dict[str, object]
MISSES_KEPT = 4096


class OwnContents(NamedTuple):
    """Our own cache: its state, its records, and the advice on it."""

    state: CacheState
    origins: Origins
    advice: Iterable[Advice]
    """An iterable that can be read once: nearly every program may have advice."""
    misses: Sequence[Record]
    processes: Sequence[Record]
    noted: int
    """How many builds wait for ``warm --misses``."""


class Overview(NamedTuple):
    """All caches of this machine, and their sums."""

    own: OwnContents
    roots: list[CacheState]
    states: list[CacheState]
    """The states of all other caches: further roots, other systems' caches, unused caches."""

    @property
    def every(self) -> list[CacheState]:
        return [self.own.state, *self.states]

    @property
    def sums(self) -> Mapping[str, int]:
        stale = sum(one.stale.size_bytes for one in self.every if one.stale)
        return {"total_bytes": sum(one.size_bytes for one in self.every), "total_stale_bytes": stale}


def overview(opened: Opened, others: Sequence[Cache], unused: Sequence[Cache], toolchains: Ask) -> Overview:
    """All caches with their stale entries, judged as by ``evict --cache all``.

    Drivers are queried only about devices that two toolchains built for, as a child process for each takes a
    second: the entries of an old driver are reported once something was built with the new one.
    """
    first, *further = opened.roots
    own = own_contents(first)
    roots = [state_of(one) for one in further]
    origins = [Origins() for _ in others]
    states = [foreign_state(cache, one) for cache, one in zip(others, origins, strict=True)]
    # No system root, and no place from which programs are redirected, is judged.
    judged = [Origins() if first.location().role else own.origins, *origins]
    here = tuple(toolchains(entry for one in judged for entry in one.rebuilt()))
    now_ns = time.time_ns()
    its, *rest = (
        state._replace(stale=one.summary(one.stale(here, now_ns)))
        for state, one in zip([own.state, *states], judged, strict=True)
    )
    own = own._replace(state=its)
    return Overview(own, roots, [*roots, *rest, *map(foreign_state, unused)])


def own_contents(own: OwnRoot) -> OwnContents:
    """A root of our own cache: its state, advice, misses and processes."""
    traces, origins = Traces(), Origins()
    found = own_state(own, origins.of(traces.of(own.scan())))
    advice = advise_on(traces, key_fields_of(own), time.time_ns())
    records = own.store.journal_tail(MISSES_KEPT)
    processes = [record for record in records if record.get("kind") == "process"]
    return OwnContents(found, origins, advice, recent_misses(records), processes, own.store.missed.count())


def state_of(cache: Cache) -> CacheState:
    return own_state(cache, cache.scan()) if isinstance(cache, OwnRoot) else foreign_state(cache)


def own_state(cache: OwnRoot, scanned: Iterable[CacheEntry]) -> CacheState:
    """The state of our own cache, with the size of the files that are not entries."""
    found = state(cache, scanned)._replace(beside_bytes=cache.beside_bytes())
    if not found.damaged:
        return found
    count = format_count(found.damaged, "entry", "entries")
    told = Problem(None, f"{count} cannot be read; 'gpucache verify' has the reasons")
    return found._replace(found=(told,))


def state(cache: Cache, scanned: Iterable[CacheEntry]) -> CacheState:
    """How much is in a cache, from a scan of it."""
    entries = size_bytes = damaged = 0
    programs: set[str] = set()
    oldest: int | None = None
    for entry in scanned:
        entries += 1
        size_bytes += entry.size_bytes
        damaged += bool(entry.damage)
        programs.add(entry.program)
        if oldest is None or entry.last_used_ns < oldest:
            oldest = entry.last_used_ns
    return CacheState(
        location=cache.location(),
        entries=entries,
        size_bytes=size_bytes,
        files=entries,
        programs=len(programs - {""}),
        damaged=damaged,
        oldest_used_ns=oldest,
    )


def foreign_state(cache: Cache, origins: Origins | None = None) -> CacheState:
    """The state of another system's cache with each problem that a scan finds; the origins of
    its entries are counted in the same pass."""
    damages: list[Problem] = []
    counted = Origins() if origins is None else origins

    def seen() -> Iterator[CacheEntry]:
        for entry in counted.of(cache.scan(beside=True)):
            if entry.damage:
                detail = f"{entry.key[:12]} {entry.program}: {entry.damage}"
                damages.append(Problem(entry.damage.kind, detail))
            yield entry

    whole: list[Problem] = []
    found = CacheState(cache.location(), 0, 0, 0, 0, 0)
    try:
        found = state(cache, seen())
        whole = [Problem(one.kind, one.detail) for each in cache.leftovers() for one in each.findings]
        whole += [Problem(None, told) for told in counted.without_reader()]
    except GpucacheError as error:  # reported, so that it does not hide the other caches
        whole = [Problem(None, str(error))]
    told = {one.detail: one for one in (*whole, *damages) if one.detail not in found.location.problems}
    return found._replace(found=tuple(told.values()))


def key_fields_of(cache: Cache) -> Callable[[str], Sequence[KeyField]]:
    """Reads the key fields of an entry by its key; empty if they cannot be read."""

    def read(key: str) -> Sequence[KeyField]:
        try:
            return next((cache.report(entry).key_fields for entry in cache.find(key)), ())
        except FormatError:
            return ()

    return read


def recent_misses(records: Sequence[Record], oldest_ns: int = 0) -> list[Record]:
    """The misses among records of the journal, newest first, from an instant on."""
    return [record for record in records if record.get("kind") == "miss" and _when(record) >= oldest_ns]


def _when(record: Record) -> int:
    when = record.get("when_ns")
    return when if isinstance(when, int) else 0


GROUPED_MS = 1600
"""How long changes are gathered at most before they are reported."""
_AGAIN_MS = 5_000
_SLOW_NS = 5_000_000_000
_TOLD_NS = 60_000_000_000
_MOST_COMMAND = 100
QUIET_MS = 50
"""How long nothing has to change before they are reported."""
_MOST_LINKS = 65_536
"""How many open files of other processes are examined at most."""
_HALF = (FindingKind.TRUNCATED, FindingKind.ORPHAN, FindingKind.LOCKED)
Seen = dict[str, tuple[int, int]]


class _End(threading.Event):
    """A flag that places have to be looked for again, or that the reader is gone."""

    def __init__(self, unread: Callable[[], bool]) -> None:
        super().__init__()
        self._unread = unread

    def is_set(self) -> bool:
        """Whether to stop; the library calls this whenever it looks for changes."""
        return super().is_set() or self._unread()


def watch(
    find: Callable[[], Sequence[Cache]],
    started: Callable[[int], None],
    unread: Callable[[], bool],
    *,
    locks: bool = False,
) -> Iterator[Written | Compiling]:
    """Every entry that is written from now on, until an interrupt or until it is ``unread``.

    ``find`` gives the caches, existing or not; it is called again when a place has appeared. ``started`` is
    called with their number once no write can be missed. With ``locks`` also the compiles that run for some
    seconds, once a minute. Raises UsageError if the library is missing or the system watches no
    more directories.
    """
    caches = list(find())
    running: dict[tuple[str, str], int] = {}
    seen = {_place(cache): _look(cache) for cache in caches}
    while True:
        here = [cache for cache in caches if Path(cache.location().root).exists()]
        awaited = {Path(cache.location().root) for cache in caches if cache not in here}
        came = _End(unread)
        with (
            _watcher([cache.location().root for cache in here], recursive=True) as watcher,
            _arrival(awaited, came),
        ):
            for cache in here:  # writes from before the watch began
                yield from _written(cache, seen, ())
            started(len(caches))
            started = _nothing
            if locks:
                yield from _compiling(here, running)
            again_ms = _AGAIN_MS if locks else 0
            while (changes := watcher.watch(GROUPED_MS, QUIET_MS, again_ms, came)) not in ("signal", "stop"):
                if locks:
                    yield from _compiling(here, running)
                paths = [path for _, path in changes] if isinstance(changes, set) else []
                for cache in here:
                    touched = [path for path in paths if Path(path).is_relative_to(cache.location().root)]
                    if touched:
                        yield from _written(cache, seen, touched)
        if changes == "signal":
            raise KeyboardInterrupt
        if unread():
            return
        caches = list(find())


def _nothing(_: int) -> None:
    """Does nothing: the number was reported already."""


def _place(cache: Cache) -> str:
    return f"{cache.name}:{cache.location().root}"


def _look(cache: Cache) -> Seen:
    with suppress(GpucacheError):
        return {entry.key: (entry.size_bytes, entry.created_ns) for entry in cache.scan()}
    return {}


def _written(cache: Cache, seen: dict[str, Seen], touched: Collection[str]) -> Iterator[Written]:
    """The entries of a cache that are new or have changed since the last look."""
    before, now = seen.get(_place(cache), {}), Seen()
    found: list[CacheEntry] = []
    with suppress(GpucacheError):
        for entry in cache.scan():
            if entry.damage is not None and entry.damage.kind in _HALF:
                continue  # its writer is not done, and the next change shows whether it is
            now[entry.key] = entry.size_bytes, entry.created_ns
            if before.get(entry.key) != now[entry.key]:
                found.append(entry)
    seen[_place(cache)] = now
    opened = list(_opened(touched)) if found else []
    for entry in found:
        writers = dict.fromkeys(who for path, who in opened if Path(path).is_relative_to(entry.path))
        before_bytes, _ = before.get(entry.key, (None, 0))
        yield Written(entry, cache.location().root, time.time_ns(), tuple(writers), before_bytes)


def _compiling(caches: Sequence[Cache], running: dict[tuple[str, str], int]) -> Iterator[Compiling]:
    """The empty files below some caches that processes have locked, each once a minute; none but on Linux.

    ``running`` has when each was last reported. Source of the lines: proc_locks(5).
    """
    roots = [(cache, os.path.realpath(cache.location().root)) for cache in caches]
    held = {}
    with suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            words = line.split()
            if words[3:4] == ["WRITE"] and int(words[4]) not in (-1, os.getpid()):
                held[int(words[5].rpartition(":")[2])] = words[4]
    now_ns = time.time_ns()
    for process, fd in (
        (each, fd) for each in {*held.values()} for fd in _folders(Path("/proc", each, "fd"))
    ):
        with suppress(OSError):
            path = os.readlink(f"/proc/{process}/fd/{fd}")  # noqa: PTH115 - no Path for each
            cache = next((cache for cache, root in roots if Path(path).is_relative_to(root)), None)
            status = os.stat(path) if cache is not None else None  # noqa: PTH116
            if cache is None or status is None or status.st_size or held.get(status.st_ino) != process:
                continue
            held_ns = now_ns - status.st_mtime_ns
            if held_ns < _SLOW_NS or now_ns - running.get((path, process), 0) < _TOLD_NS:
                continue
            running[path, process] = now_ns
            command = _command_line(process)
            if "multiprocessing" in command:  # a worker, whose parent says more
                stat = Path("/proc", process, "stat").read_text("utf-8", "replace")
                command = _command_line(stat.rpartition(")")[2].split()[1])
            yield Compiling(cache.name, cache.location().root, path, process, command, now_ns, held_ns)


def _command_line(process: str) -> str:
    words = Path("/proc", process, "cmdline").read_bytes().replace(b"\0", b" ")
    return words.decode(errors="replace").strip()[:_MOST_COMMAND]


def _opened(paths: Collection[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """The processes that have some files open for writing; none if the system does not show them."""
    wanted, looked = {os.path.realpath(path): path for path in paths}, 0
    for process in _folders(Path("/proc")):
        if not process.isdigit() or int(process) == os.getpid():
            continue
        for fd in _folders(Path("/proc", process, "fd")):
            looked += 1
            if looked > _MOST_LINKS:
                return
            with suppress(OSError, ValueError):
                path = wanted.get(os.readlink(f"/proc/{process}/fd/{fd}"))  # noqa: PTH115 - no Path for each
                if path is not None and _writes(process, fd):
                    yield path, (process, _command(process))


def _writes(process: str, fd: str) -> bool:
    if sys.platform == "win32":
        return False
    for line in Path("/proc", process, "fdinfo", fd).read_text("ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _command(process: str) -> str:
    return Path("/proc", process, "comm").read_text("utf-8", "replace").strip()


def _folders(path: Path) -> Iterable[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - names alone
    except OSError:
        return ()


@contextmanager
def _watcher(roots: Sequence[str], *, recursive: bool) -> Iterator["RustNotify"]:
    """The library's watch over some directories; raises UsageError."""
    try:
        from watchfiles._rust_notify import RustNotify
    except ImportError:
        raise UsageError("to watch caches needs a library; install it with: pip install watchfiles") from None
    try:
        watcher = RustNotify(list(roots), False, False, 300, recursive, True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"the system does not watch the directories ({error}); it watches a limited number, which "
            "'sysctl fs.inotify.max_user_watches=1048576' raises, or name fewer caches by --cache"
        ) from None
    try:
        yield watcher
    finally:
        watcher.close()


@contextmanager
def _arrival(places: Collection[Path], came: threading.Event) -> Iterator[None]:
    """Set ``came`` as soon as one of the missing places, or a directory above one, appears."""
    if not places:
        yield
        return
    above = {place: next(one for one in place.parents if one.exists()) for place in places}
    end = threading.Event()

    def wait(watcher: "RustNotify") -> None:
        awaited = {path / place.relative_to(path).parts[0] for place, path in above.items()}
        while not any(one.exists() for one in awaited):
            if not isinstance(watcher.watch(GROUPED_MS, QUIET_MS, 0, end), set):
                return
        came.set()

    with _watcher(sorted({str(one) for one in above.values()}), recursive=False) as watcher:
        thread = threading.Thread(target=wait, args=(watcher,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
