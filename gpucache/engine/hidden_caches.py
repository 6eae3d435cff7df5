"""Whether a command has a cache that no variable of gpucache moves, and its place.

There are three signs, and each one shows caches that the others miss:

* The first run used far more CPU time than later cold starts: it filled a cache that was not moved. This
  costs nothing and misses a cache that was full before. CPU time, as a first run also waits for the disk.
* A cold start with an empty home directory and an empty TMPDIR used far more CPU time than the other cold
  starts: a cache below them had saved time, and the files written anew show where it is. This costs a run and
  misses places with an absolute path or from the user database. The run is not an arm of the benchmark, as
  programs have settings, licences and packages below the home directory. If it fails, it shows nothing.
* A warm start under ``strace``, if that is installed, read files that the command wrote since the benchmark
  began, files of a known cache, or files in a directory that is called a cache. This costs a run and misses a
  cache that was full before and has another name.

Not used: inotify and the times of files (they need to know the places and see the files of all programs),
fanotify (needs root). Must not know which caches there are.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_ISREG
from tempfile import gettempdir

from gpucache.host.process_groups import CommandRun
from gpucache.units import format_duration, format_list

UNTRACED = "it could not be traced by strace, so a cache in a place that only it knows may have gone unseen"
_MORE = 1.5
_LEAST_NS = 100_000_000
"""The start of a program alone varies by less than this."""
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
    """CPU time of the first run."""
    cold_ns: tuple[int, ...] = ()
    """CPU time of the cold starts."""
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
    """Whether a run used more CPU time than noise explains."""
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
    """The facts that distinguish a file of a cache from other files that a traced command read."""

    begun_ns: int
    """When the first run began."""
    traced_ns: int
    """When the traced run began."""
    ours: Path
    """The directory below which caches were moved."""
    root_of: Callable[[Path], Path | None]
    """The root of the known cache that a directory belongs to."""
    own: tuple[str, ...] | None = None
    """The command's words and the current directory: a directory above one of them needs more than the name.
    None if a name never makes a directory a cache."""


def places(files: Iterable[Path], watched: Watched) -> tuple[str, ...]:
    """The directories of other caches that were read, each once, with ``~`` for the home directory."""
    found: dict[Path, None] = {}
    root_of, ours = cache(watched.root_of), watched.ours.resolve()
    for path in files:
        is_program = str(path).startswith(_SYSTEM) or path.suffix in _CODE or "site-packages" in path.parts
        if is_program or path.is_relative_to(ours):
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
    """The places; many in one directory become that one, as Boost.Compute has a directory for each entry.

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
