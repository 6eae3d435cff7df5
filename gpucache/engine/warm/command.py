"""Warming by a command: it is run until it settles, which means that a run adds nothing to any cache.

Some stacks need three runs: the first compiles, the second finds the files of the first and writes them under
other names, the third writes nothing. Owns the runs and the question whether they achieved their aim: the
command may use a cache that was not moved, or none that is known. Must not know which caches there are, or
how they are redirected.

Three signs show that a command has a cache that no variable moves; each shows caches that the others miss:

* The first run used far more CPU time than later cold starts: it filled a cache that was not moved. This
  costs nothing and misses a cache that was full before. CPU time, as a first run also waits for the disk.
* A cold start with an empty home directory and an empty TMPDIR used far more CPU time than the other cold
  starts: a cache below them had saved time, and the files written anew show where it is. This costs a run and
  misses places with an absolute path or from the user database. Programs have settings, licences
  and packages below the home directory, so a run that fails shows nothing.
* A warm start under ``strace``, if that is installed, read files that the command wrote since the first run
  began, files of a known cache, or files in a directory that is called a cache. This costs a run and misses a
  cache that was full before and has another name.

Not used: inotify and the times of files (they need to know the places and see the files of all programs),
fanotify (needs root).
"""

import os
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_ISREG
from tempfile import gettempdir
from typing import Protocol

from gpucache.answers.bench import SettleRun, SettleSummary
from gpucache.answers.entries import Growth, Snapshot, entries, growth, joined, texts
from gpucache.host import os_errors
from gpucache.host.process_groups import CommandRun, run_command
from gpucache.host.scratch import absent, remove_empty, scratch
from gpucache.units import format_count, format_duration, format_list

UNTRACED = "it could not be traced by strace, so a cache in a place that only it knows may have gone unseen"
_MORE = 1.5
_LEAST_NS = 100_000_000
"""CPU times that differ by less than this may be those of equal starts."""
_MANY = 3

_TRACER = ("strace", "-ff", "-qq", "-y", "--seccomp-bpf", "-e", "trace=?open,openat,?openat2")
_TRACED = "trace"
_OPENED = re.compile(rb"^open\w*\((.*)\) += \d+<(.*)>$")
_ESCAPED = re.compile(rb"\\([0-7]{1,3}|.)")
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}

_FOLDERS = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr", "var/cache", "var/lib")
_SYSTEM = tuple(f"/{name}/" for name in _FOLDERS)
_CODE = (".py", ".pyc")
_CALLED_CACHE = re.compile(r"(^|[._-])caches?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Homeless:
    """A cold start with an empty home directory."""

    cpu_ns: int
    wrote: tuple[str, ...]
    """The places below the home directory that it filled, the largest first."""


@dataclass(frozen=True, slots=True)
class Clues:
    """The signs of a hidden cache that a command gave."""

    first_ns: int = 0
    cold_ns: tuple[int, ...] = ()
    homeless: Homeless | None = None
    """The cold start without a home directory; None if it failed or was not tried."""
    places: tuple[str, ...] | None = ()
    """Directories of a cache that was not moved and from which it read; None if it could not be traced."""

    @property
    def reason(self) -> str:
        """Why cold starts were not cold, with the place; empty if there is no sign of that."""
        if self.places:
            return f"it also caches in {format_list(self.places)}, which no variable of gpucache moves"
        if self.homeless is not None and is_far_more(self.homeless.cpu_ns, self.cold_ns):
            where = f" in {format_list(self.homeless.wrote)}" if self.homeless.wrote else ""
            figures = _figures(self.homeless.cpu_ns, self.cold_ns)
            return f"it also caches below the home directory{where}: with an empty one it used {figures}"
        if is_far_more(self.first_ns, self.cold_ns):
            figures = _figures(self.first_ns, self.cold_ns)
            return f"it also caches where gpucache does not look: the first run of all used {figures}"
        return ""


def is_far_more(cpu_ns: int, others_ns: Sequence[int]) -> bool:
    return bool(others_ns) and cpu_ns > _MORE * max(others_ns) + _LEAST_NS


def _figures(cpu_ns: int, cold_ns: Sequence[int]) -> str:
    return f"{format_duration(cpu_ns)} of CPU time, a cold start at most {format_duration(max(cold_ns))}"


def homeless_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Make an empty home and an empty TMPDIR below a directory; the user's Python packages stay visible."""
    empty = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    for place in empty.values():
        Path(place).mkdir(parents=True)
    packages = environ.get("PYTHONUSERBASE") or f"{environ.get('HOME', '')}/.local"
    return {**empty, "PYTHONUSERBASE": packages}


def homeless_places(folder: Path) -> tuple[str, ...]:
    """The places that were filled below the empty home directory and TMPDIR, the largest first."""
    sizes: dict[str, int] = {}
    for name, shown in (("home", "~"), ("tmp", "TMPDIR")):
        for place, _, files in os.walk(folder / name):
            for file in files:
                path = Path(place, file)
                with suppress(OSError):
                    first = path.relative_to(folder / name).parts[0]
                    sizes[f"{shown}/{first}"] = sizes.get(f"{shown}/{first}", 0) + path.lstat().st_size
    return tuple(sorted((place for place, size in sizes.items() if size), key=lambda one: -sizes[one]))


def trace(
    run: Callable[[tuple[str, ...]], CommandRun], argv: Sequence[str], folder: Path, watched: "Watched"
) -> tuple[str, ...] | None:
    """The places of caches outside of ours that a command reads; None if it cannot be traced.

    ``run`` runs a command line. ``strace`` writes a file for each process into ``folder``, which this
    function makes and removes.
    """
    if shutil.which(_TRACER[0]) is None:
        return None
    folder.mkdir()
    done = run((*_TRACER, "-o", str(folder / _TRACED), "--", *argv))
    found = None if done.error else places(opened(folder), watched)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def opened(folder: Path) -> Iterator[Path]:
    """The real paths of the files that a traced command opened for reading, each once."""
    seen: set[bytes] = set()
    for file in sorted(folder.glob(f"{_TRACED}.*")):
        with file.open("rb") as lines:
            for line in lines:
                match = _OPENED.match(line)
                if match and b"O_WRONLY" not in match[1] and match[2] not in seen:
                    seen.add(match[2])
                    yield Path(os.fsdecode(_ESCAPED.sub(_unescaped, match[2])))


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 255]) if code[0] in b"01234567" else _LETTERS.get(code, code)


@dataclass(frozen=True, slots=True)
class Watched:
    """Recognises which of the files that a traced command read belong to a cache."""

    begun_ns: int
    traced_ns: int
    ours: Path
    root_of: Callable[[Path], Path | None]
    """The root of the known cache that a directory belongs to."""
    own: tuple[str, ...] | None = None
    """The command's words and the current directory: a directory above one of them needs more than the name.
    None if a name never makes a directory a cache."""


def places(files: Iterable[Path], watched: Watched) -> tuple[str, ...]:
    """The directories of other caches that were read, each once, with ``~`` for the home directory."""
    found: dict[Path, None] = {}
    root_of, ours = cache(watched.root_of), watched.ours.resolve()
    state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))  # noqa: PTH111
    for path in files:
        is_program = str(path).startswith(_SYSTEM) or path.suffix in _CODE or "site-packages" in path.parts
        if is_program or path.is_relative_to(ours) or path.is_relative_to(state):
            continue
        with suppress(OSError):
            status = path.stat()
            if not S_ISREG(status.st_mode) or not status.st_size or status.st_mtime_ns >= watched.traced_ns:
                continue
            place = root_of(path.parent) or _called_cache(path, watched.own)
            if place is None and status.st_mtime_ns >= watched.begun_ns:
                place = path.parent
            if place is not None:
                found[place] = None
    return tuple(dict.fromkeys(_shown(place) for place in _gathered(tuple(found))))


def _gathered(places: Sequence[Path]) -> Iterator[Path]:
    """The places; if many are in one directory, the directory, as Boost.Compute has one for each entry.

    A directory that all programs share is not a cache: the home directory, TMPDIR, and those above them.
    """
    counts = Counter(parent for place in places for parent in place.parents)
    everybodys = [Path(gettempdir()), Path("/var/tmp"), Path(os.environ.get("HOME") or "/")]
    for place in places:
        many = (parent for parent in place.parents if counts[parent] > _MANY)
        yield next((one for one in many if not any(top.is_relative_to(one) for top in everybodys)), place)


def _called_cache(path: Path, own: Sequence[str] | None) -> Path | None:
    if own is None:
        return None
    around = [Path(word).resolve() for word in own]
    for parent in reversed(path.parents):
        if _CALLED_CACHE.search(parent.name) and not any(one.is_relative_to(parent) for one in around):
            return parent
    return None


def _shown(place: Path) -> str:
    with suppress(ValueError, RuntimeError):
        return f"~/{place.relative_to(Path.home())}"
    return str(place)


MOST_RUNS = 10
ENVIRONMENT_FILE = "gpucache.env"
_AT_LEAST = 2
"""With moved caches there are at least two runs, to compare their CPU times."""
_LONG_NS = 1_000_000_000
_AS_LONG = 0.9


class CacheEnvironment(Protocol):
    """All known caches of a program's environment: moves them below a directory, and reads them."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The user's own environment."""

    @property
    def off(self) -> frozenset[str]:
        """Caches that are off for the user and are turned on where they are moved to."""

    def variables(self, folder: Path) -> Mapping[str, str]:
        """The variables that keep every known cache below a directory."""

    def isolate(self, folder: Path) -> Mapping[str, str]:
        """The variables that isolate caches below a directory, after making it; raises OSError."""

    def look(self, environ: Mapping[str, str], *, private: bool) -> Snapshot:
        """The contents of the caches of an environment; ``private`` for one below a directory of ours."""

    def root_of(self, path: Path) -> Path | None:
        """The root of the known cache that a directory belongs to; None for any other directory."""

    def notes(self, written: Collection[str]) -> tuple[str, ...]:
        """Remarks on caches that were written, a sentence each."""

    def used(self, folder: Path) -> tuple[tuple[str, str], ...]:
        """The variables of the caches below a directory that have entries."""

    def remove_unused(self, folder: Path) -> None:
        """Remove the directories that were made below a directory for caches and are still empty."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The other findings about a command that warmed caches."""

    holds: bool = True
    places: tuple[str, ...] | None = ()
    """Caches that it reads and that were not moved; None if it could not be traced."""
    off: tuple[str, ...] = ()
    stray: tuple[Growth, ...] = ()
    """Entries added to the user's own caches, although other caches were to be warmed."""
    homeless: Homeless | None = None
    """A start with an empty home directory, if a trace showed no cache or was not possible."""
    texts: tuple[str, ...] = ()
    """Files in these caches that do not look like entries."""


def warm_command(
    argv: Sequence[str],
    timeout_s: float,
    around: CacheEnvironment,
    into: Path | None,
    progress: Callable[[int], None],
) -> tuple[list[SettleRun], SettleSummary]:
    """Warm every known cache by a command, with ``into`` only caches below that directory, and summarise.

    The directory gets a file with the variables that lead to its caches, unless the command fails.
    ``progress`` is called with the number of each run that begins. Raises CommandError for a command that
    cannot be started, UsageError or SystemRefusedError for a directory that cannot be written.
    """
    folder = into.absolute() if into is not None else None
    new = absent(folder) if folder is not None else ()
    warmed: tuple[tuple[str, str], ...] = ()
    try:
        with scratch("warm") as place:
            runs, proof = _run(argv, timeout_s, around, folder, place, progress)
        written = {one.cache for run in runs for one in run.growth}
        notes = around.notes(proof.off if folder is None else written)
        if folder is not None and not runs[-1].error:
            warmed = around.used(folder)
            write_variables(folder, warmed)
        elif folder is not None and written:
            notes = (*notes, f"its caches are left below {into}; no {ENVIRONMENT_FILE} was written")
    finally:
        if folder is not None:
            around.remove_unused(folder)
            remove_empty(new)
    return runs, summarise_settle(runs, warmed, notes, proof)


def write_variables(folder: Path, environment: tuple[tuple[str, str], ...]) -> None:
    """Write the variables of caches below a directory to its file; raises UsageError, SystemRefusedError."""
    file = folder / ENVIRONMENT_FILE
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment] or ["# nothing is cached\n"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise os_errors.unwritable(file, error, "name another directory") from None


def _run(
    argv: Sequence[str],
    timeout_s: float,
    around: CacheEnvironment,
    into: Path | None,
    place: Path,
    progress: Callable[[int], None],
) -> tuple[list[SettleRun], Proof]:
    """The runs, and the other findings; caches are below ``into``, or where the user has them.

    More runs follow. If caches were moved, one is traced, and if that shows no other cache, one has an empty
    home directory. If the user's own caches gained nothing, one has empty caches, to distinguish a command
    that was warm already from one that uses no known cache. ``place`` is an empty directory of ours.
    """
    try:
        environ = around.environ if into is None else {**around.environ, **around.isolate(into)}
    except OSError as error:
        raise os_errors.unwritable(into, error, "name another directory", "made") from None
    private = into is not None

    def run(words: Sequence[str], environ: Mapping[str, str] = environ) -> CommandRun:
        return run_command(words, environ, timeout_s)

    begun_ns, own = time.time_ns(), around.look(around.environ, private=False) if private else {}
    runs: list[SettleRun] = []
    progress(1)
    least = _AT_LEAST if private else 1
    for done in settle(lambda: run(argv), lambda: around.look(environ, private=private), least=least):
        runs.append(done)
        progress(len(runs) + 1)
    if runs[-1].error:
        return runs, Proof()
    if into is None:
        return runs, Proof() if runs[0].growth else _with_empty_caches(argv, run, around, place)
    stray = growth(own, around.look(around.environ, private=False))
    watched = Watched(begun_ns, time.time_ns(), into, around.root_of)
    places = trace(run, argv, place / "trace", watched)
    homeless = _without_home(argv, run, environ, place / "homeless") if not places else None
    held = around.look(environ, private=True)
    return runs, Proof(entries(held) > 0, places, stray=stray, texts=texts(held), homeless=homeless)


def _without_home(
    argv: Sequence[str],
    run: Callable[[Sequence[str], Mapping[str, str]], CommandRun],
    environ: Mapping[str, str],
    folder: Path,
) -> Homeless | None:
    """A start with the moved caches and an empty home directory, where a trace shows no other cache; None if
    the command fails then, as without its settings."""
    done = run(argv, {**environ, **homeless_environment(folder, environ)})
    return None if done.error else Homeless(done.cpu_ns, homeless_places(folder))


def _with_empty_caches(
    argv: Sequence[str],
    run: Callable[[Sequence[str], Mapping[str, str]], CommandRun],
    around: CacheEnvironment,
    place: Path,
) -> Proof:
    """Whether a command fills known caches if they are empty, and which of these are off for the user."""
    environ = {**around.environ, **around.isolate(place / "empty")}
    before = around.look(environ, private=False)
    run(argv, environ)
    filled = [one.cache for one in growth(before, around.look(environ, private=False))]
    off = tuple(name for name in filled if name in around.off)
    return Proof(holds=len(off) < len(filled), off=off)


def settle(
    run: Callable[[], CommandRun], look: Callable[[], Snapshot], most: int = MOST_RUNS, least: int = 1
) -> Iterator[SettleRun]:
    """Each run with its additions, until one adds nothing or fails, or there were ``most``."""
    before = look()
    for number in range(1, most + 1):
        done = run()
        after = look()
        added = growth(before, after)
        yield SettleRun(number, done.duration_ns, added, done.error, done.cpu_ns)
        if done.error or (not added and number >= least):
            return
        before = after


def summarise_settle(
    runs: Sequence[SettleRun],
    environment: tuple[tuple[str, str], ...] = (),
    notes: tuple[str, ...] = (),
    proof: Proof | None = None,
) -> SettleSummary:
    """Whether the command settled, all additions, and the entries that a deployment may miss."""
    last = runs[-1] if runs else None
    settled = last is not None and not last.growth and not last.error
    failed = last.error if last else "it was not run"
    return SettleSummary(
        runs=len(runs),
        settled=settled,
        failed=failed,
        growth=joined(tuple(run.growth for run in runs)),
        restless=() if settled or last is None else last.growth,
        environment=environment,
        missed=() if failed else (*_rejected(runs), *(_missed(runs, proof) if proof else ())),
        notes=(*(() if failed else _unhelped(runs)), *notes, *_unseen(proof)),
    )


def _rejected(runs: Sequence[SettleRun]) -> Iterator[str]:
    """A sentence for each cache in which the last two runs only rewrote existing entries."""
    before, last = (runs[-2].growth, runs[-1].growth) if len(runs) > 1 else ((), ())
    replaced = {one.cache for one in before if one.again}
    for one in last:
        if one.again == one.entries and one.cache in replaced:
            count = format_count(one.again, "entry that was there", "entries that were there")
            yield (
                f"it wrote {count} into {one.cache} again, so it rejects what it finds and compiles it at "
                f"every start: {format_list(one.names)}"
            )


def _missed(runs: Sequence[SettleRun], proof: Proof) -> Iterator[str]:
    """Why a deployment may have to compile nevertheless, a sentence each."""
    if proof.places:
        yield f"it also caches in {format_list(proof.places)}, which was not moved"
    elif proof.stray:
        yield f"it also wrote into your own cache of {format_list([one.cache for one in proof.stray])}"
    elif proof.homeless is not None and is_far_more(proof.homeless.cpu_ns, [runs[-1].cpu_ns]):
        where = f" in {format_list(proof.homeless.wrote)}" if proof.homeless.wrote else ""
        used = (
            f"{format_duration(proof.homeless.cpu_ns)} of CPU time, before {format_duration(runs[-1].cpu_ns)}"
        )
        yield f"it also caches below the home directory{where}: with an empty one it used {used}"
    if not proof.holds:
        hidden = "" if proof.places else _hidden(runs)
        yield f"nothing was warmed: it wrote into no cache that is known{hidden}"


def _unseen(proof: Proof | None) -> Iterator[str]:
    if proof is not None and proof.places is None:
        yield UNTRACED
    if proof is not None and proof.texts:
        yield f"text of a program that gpucache does not know is not an entry: {format_list(proof.texts)}"


def _hidden(runs: Sequence[SettleRun]) -> str:
    """For a command that wrote nothing: a clause on the CPU times of the first and the last run, or empty."""
    first, last = runs[0], runs[-1]
    if first is last or not first.cpu_ns:
        return ""
    figures = f"run {last.number} used {format_duration(last.cpu_ns)} of CPU time"
    before = format_duration(first.cpu_ns)
    if is_far_more(first.cpu_ns, [last.cpu_ns]):
        return f", and yet {figures} after {before} in run 1, so it caches where gpucache does not look"
    return f", and {figures}, run 1 {before}"


def _unhelped(runs: Sequence[SettleRun]) -> Iterator[str]:
    """Whether the last run took as long as the first: it compiles without a cache, or has other work."""
    first, last = runs[0], runs[-1]
    if first.growth and last.cpu_ns >= _LONG_NS and last.cpu_ns >= _AS_LONG * first.cpu_ns:
        yield (
            f"run {last.number} used as much CPU time as run 1 ({format_duration(last.cpu_ns)} and "
            f"{format_duration(first.cpu_ns)}): the warmed caches save none"
        )
