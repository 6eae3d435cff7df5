"""A table of owners and damages: ``python -m tests.peers.damages NAME=PYTHON...``, which has that owner.

Each owner fills its own cache on this machine. Files of two kinds in it are damaged in one way after the
other; the owner starts on that, and again after a repair; at last everything is evicted. A row is one owner.
"""

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.caches.interface import Cache
from tests.peers import owners
from tests.peers.owners import Owner

_KINDS_OF_FILES = 2


def _cut(part: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(len(data) * part)]


def _flip(part: float) -> Callable[[bytes], bytes]:
    def flipped(data: bytes) -> bytes:
        at = min(int(len(data) * part), len(data) - 1)
        return data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :]

    return flipped


_DAMAGES: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": _cut(0),
    "half": _cut(0.5),
    "first byte": _flip(0),
    "middle byte": _flip(0.5),
}


def _victims(place: Path) -> list[Path]:
    largest: dict[str, Path] = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            known = largest.setdefault(path.suffix, path)
            if path.stat().st_size > known.stat().st_size:
                largest[path.suffix] = path
    return sorted(largest.values(), key=lambda path: -path.stat().st_size)[:_KINDS_OF_FILES]


def _wrong(cache: Cache) -> set[FindingKind]:
    """The kinds of the faults in a cache, by itself and in its entries."""
    found = [one for checked in cache.leftovers() for one in checked.findings]
    found += [one for entry in cache.scan() for one in cache.check(entry).findings]
    return {one.kind for one in found if one.kind.wrong}


def _repair(cache: Cache) -> None:
    for checked in list(cache.leftovers()):
        cache.repair(checked, None)
    for entry in list(cache.scan()):
        if (checked := cache.check(entry)).findings:
            cache.repair(checked, entry)


def _rows(owner: Owner, python: str, home: Path) -> Iterator[tuple[str, int]]:
    """What happened, each with how often: to be summed."""
    place, kept = home / owner.place, home / "kept"
    first = [owner.run(home, python) for _ in range(2)]
    if "failed" in first or not place.is_dir():
        yield "does not run", 1
        return
    shutil.copytree(place, kept, symlinks=True)
    yield "false alarms", len(_wrong(owner.opened(home)))
    for victim in _victims(place):
        relative = victim.relative_to(place)
        for damage in _DAMAGES.values():

            def damaged(relative: Path = relative, damage: Callable[[bytes], bytes] = damage) -> None:
                shutil.rmtree(place)
                shutil.copytree(kept, place, symlinks=True)
                (place / relative).chmod(0o600)
                (place / relative).write_bytes(damage((place / relative).read_bytes()))

            damaged()
            found = bool(_wrong(owner.opened(home)))
            fatal = owner.run(home, python) == "failed"
            healthy = False
            if found:
                damaged()
                _repair(owner.opened(home))
                healthy = owner.run(home, python) != "failed"
            yield "damages", 1
            yield "found", found
            yield "fatal", fatal
            yield "fatal, found", fatal and found
            yield "healthy after repair", healthy
    shutil.rmtree(place)
    shutil.copytree(kept, place, symlinks=True)
    cache = owner.opened(home)
    for entry in list(cache.scan()):
        cache.remove(entry, "--all")
    yield "healthy after evict", owner.run(home, python) != "failed"


def main(words: list[str]) -> None:
    """Print a line for each pair of a name and an interpreter, the names of ``tests.peers.owners``."""
    columns = (
        "damages", "found", "healthy after repair", "fatal", "fatal, found", "false alarms",
        "healthy after evict", "does not run",
    )  # fmt: skip
    sys.stdout.write("\t".join(("owner", *columns)) + "\n")
    for name, _, python in (word.partition("=") for word in words or [f"{one}=" for one in owners.ALL]):
        owner = owners.ALL[name]
        total: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            for what, number in _rows(owner, python or sys.executable, home):
                total[what] += number
        sys.stdout.write("\t".join((name, *(str(total[one]) for one in columns))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.environ.pop("XDG_CACHE_HOME", None)
    main(sys.argv[1:])
