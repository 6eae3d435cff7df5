"""A command run among caches of every system, in the places of its user, and its changes to them.

``python -m tests.lived_in COMMAND...`` puts an example of each system where its owner has it by default: in a
home made for the command, among the temporary files, and where no variable moves it, such as in ``/var/tmp``
and in the home on record. If the command changed one, it ends with 1 and a line for each difference,
else as the command does. A cache that exists already is left alone, and not compared, as its owner may run.
"""

import hashlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpucache.caches.registry import NAMES, load_system
from tests.contracts.examples import ENTRIES, EXAMPLES, age

_NO_HOME = "/nonexistent"


class Seen(NamedTuple):
    """A file, link or directory."""

    mode: int
    content: str
    """The digest of a file, the target of a link, the error if it may not be read."""
    mtime: int
    """In nanoseconds."""


class Caches:
    """Examples in the places of some environments that had no cache, until they are removed."""

    def __init__(self, environs: Sequence[Mapping[str, str]]) -> None:
        self._made: dict[Path, None] = {}
        """Everything made, in its order."""
        self.places: dict[Path, str] = {}
        """The system of each cache."""
        try:
            self._fill(environs)
        except BaseException:
            self.remove()
            raise
        self.before = self.look()

    def _fill(self, environs: Sequence[Mapping[str, str]]) -> None:
        for environ in environs:
            for name in NAMES:
                places = [Path(location.root) for location in load_system(name).locations(environ)]
                if not places and environ is environs[0]:  # only programs name its place
                    places = [Path(environ["HOME"], name)]
                for place in places:
                    if not (place.is_relative_to(_NO_HOME) or os.path.lexists(place)):
                        self._make(name, place)

    def _make(self, name: str, place: Path) -> None:
        missing = [folder for folder in reversed(place.parents) if not folder.exists()]
        self._made |= dict.fromkeys(missing)
        for number in range(ENTRIES):
            EXAMPLES[name].add(place, number)
        age(place)
        self._made |= dict.fromkeys(_below(place))
        self.places[place] = name

    def look(self) -> dict[Path, Seen]:
        return {path: _seen(path) for place in self.places for path in _below(place)}

    def differences(self) -> Iterator[str]:
        """A line for each path that differs from the beginning."""
        after = self.look()
        for path in sorted({*self.before, *after}):
            was, now = self.before.get(path), after.get(path)
            if was is None or now is None:
                yield f"{path}: {'new' if was is None else 'removed'}"
            elif fields := [field for field in Seen._fields if getattr(was, field) != getattr(now, field)]:
                yield f"{path}: another {' and '.join(fields)}"

    def remove(self) -> None:
        """Remove the examples, without whatever else came into their directories."""
        for path in reversed(self._made):
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()


def _below(place: Path) -> list[Path]:
    """A path, if it exists, and everything in it."""
    return [place, *sorted(place.rglob("*"))] if os.path.lexists(place) else []


def _seen(path: Path) -> Seen:
    status = path.lstat()
    return Seen(status.st_mode, _content(path, status.st_mode), status.st_mtime_ns)


def _content(path: Path, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return str(path.readlink())
    if not stat.S_ISREG(mode):
        return ""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return str(error)


def run(command: Sequence[str], environ: Mapping[str, str], others: Sequence[Mapping[str, str]] = ()) -> int:
    """The exit code of a command that runs in an environment among the caches of it and of others; 1 if it
    ended well and changed one."""
    caches = Caches([environ, *others])
    try:
        code = subprocess.call(command, env=environ)
        told = [*caches.differences()]
    finally:
        caches.remove()
    for line in told:
        print(f"a cache that the command did not make: {line}", file=sys.stderr)  # noqa: T201 - a program's
    return code or bool(told)


def _lived_in(home: Path) -> dict[str, str]:
    """The environment of a user with a home and with every variable without which an owner keeps no cache."""
    pip = Path.home() / ".cache/pip"
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")  # pip's, which it needs
    environ = {"PIP_CACHE_DIR": str(pip), **os.environ, "XDG_CONFIG_HOME": config, "HOME": str(home)}
    (home / ".cache").mkdir(parents=True)
    for name in NAMES[1:]:
        system = load_system(name)
        if not system.locations(environ):
            environ |= dict(system.isolation(home / name).environment)
    return environ


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="lived-in-") as place:
        environ = _lived_in(Path(place, "home"))
        os.environ.update(environ)  # which decides where our own cache is
        return run(sys.argv[1:], environ, [{}, {"HOME": _NO_HOME}])


if __name__ == "__main__":
    sys.exit(main())
