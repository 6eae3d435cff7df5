"""Whether a command also caches where gpucache does not look, and in which place.

Three ways of looking, each of which sees what the others miss:

* The first run of all used far more CPU time than later cold starts: it filled something that no variable
  moves. Costs nothing; misses what was full before. CPU time, as a first run also waits for the disk.
* A cold start with an empty home folder and an empty TMPDIR used far more CPU time than the other cold
  starts: what was left out had saved it, and what it wrote anew names the place. Costs a run; misses places
  named in full or through the user database. It is no arm of the benchmark, as programs find their
  settings, licences and installed packages below the home folder: where such a run fails nothing follows.
* A warm start under ``strace``, where that is installed, opened files for reading that the command itself
  wrote since the benchmark began, or that belong to a known cache or lie in a folder that is called a
  cache. Costs a run; misses what was full before under a name that says nothing.

Not used: inotify and the times of files (both need the places beforehand, and see everybody's files),
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

from gpucache.engine.commands import CommandRun
from gpucache.units import format_duration

UNTRACED = "it could not be traced by strace, so a cache in a place that only it knows may have gone unseen"
_MORE = 1.5
_LEAST_NS = 100_000_000
"""Start-up alone varies by less than this."""
_TOLD = 3

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
    """A cold start with an empty home folder."""

    cpu_ns: int
    wrote: tuple[str, ...]
    """The places below the home folder that it filled, the largest first."""


@dataclass(frozen=True, slots=True)
class Clues:
    """What was seen of a command."""

    first_ns: int = 0
    """CPU time of the first run of all."""
    cold_ns: tuple[int, ...] = ()
    """CPU time of the cold starts."""
    homeless: Homeless | None = None
    """None if it failed or was not tried."""
    places: tuple[str, ...] | None = ()
    """Folders of files that were read from a cache which nobody moved; None if it could not be traced."""

    @property
    def reason(self) -> str:
        """Why cold starts were not cold, with the place; empty if nothing speaks for that."""
        if self.places:
            return f"it also caches in {listed(self.places)}, which no variable of gpucache moves"
        if self.homeless is not None and is_far_more(self.homeless.cpu_ns, self.cold_ns):
            where = f" in {listed(self.homeless.wrote)}" if self.homeless.wrote else ""
            figures = _figures(self.homeless.cpu_ns, self.cold_ns)
            return f"it also caches below the home folder{where}: with an empty one it used {figures}"
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
    """An empty home folder and TMPDIR below a folder, which are made; Python's own packages stay."""
    empty = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    for place in empty.values():
        Path(place).mkdir(parents=True)
    packages = environ.get("PYTHONUSERBASE") or f"{environ.get('HOME', '')}/.local"
    return {**empty, "PYTHONUSERBASE": packages}


def homeless_places(folder: Path) -> tuple[str, ...]:
    """What was filled below the empty home folder, as people write it, the largest first."""
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

    ``run`` runs the words it is given; ``strace`` writes a file for each process into the folder, which is
    made and goes afterwards.
    """
    if shutil.which(_TRACER[0]) is None:
        return None
    folder.mkdir()
    done = run((*_TRACER, "-o", str(folder / _TRACED), "--", *argv))
    found = None if done.error else places(opened(folder), watched)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def opened(folder: Path) -> Iterator[Path]:
    """The files that a traced command opened for reading, by their real paths, each once."""
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
    """What tells a file of a cache from other files that a traced command read."""

    begun_ns: int
    """When the first run of all began."""
    traced_ns: int
    """When the traced one did."""
    ours: Path
    """The folder below which caches were moved."""
    root_of: Callable[[Path], Path | None]
    """The root of the known cache that a folder belongs to."""
    own: tuple[str, ...] | None = None
    """The command's words and the current directory: folders on their way are no caches for their name.
    None if a name is no reason at all."""


def places(files: Iterable[Path], watched: Watched) -> tuple[str, ...]:
    """The folders of caches outside of ours that were read, each once, shown as people write them."""
    found: dict[Path, None] = {}
    root_of, ours = cache(watched.root_of), watched.ours.resolve()
    for path in files:
        if path.is_relative_to(ours) or _is_program(path):
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
    """Places, and instead of many the folder that they share: Boost.Compute has a folder for each entry.

    A folder that everybody shares, such as the home folder and what it lies in, is nobody's cache.
    """
    counts = Counter(parent for place in places for parent in place.parents)
    everybodys = [Path(gettempdir()), Path("/var/tmp"), Path(os.environ.get("HOME") or "/")]
    for place in places:
        many = (parent for parent in place.parents if counts[parent] > _TOLD)
        yield next((one for one in many if not any(top.is_relative_to(one) for top in everybodys)), place)


def _is_program(path: Path) -> bool:
    return str(path).startswith(_SYSTEM) or path.suffix in _CODE or "site-packages" in path.parts


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


def listed(names: Sequence[str]) -> str:
    """Some of many names, for a sentence."""
    more = len(names) - _TOLD
    return f"{', '.join(names[:_TOLD])}{f' and {more} more' if more > 0 else ''}"
