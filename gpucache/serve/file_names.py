"""Names of sources that a program makes up for each run, and their replacements in the cache.

``cuda.core`` writes a source with line information to a temporary file, and CuPy names every source after a
temporary directory; NVRTC writes the name into its results. Such a name is kept with a fixed text in place of
the made-up part, and a program gets its own name back.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

KEPT = "gpucache"
"""The replacement of the eight made-up characters, with equally many of the same kind."""
_PREFIX = "tmp"
_MADE_UP = re.compile(rf"({_PREFIX}|.*_)([a-z0-9_]{{8}})(\.\w+)?")
_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/usr/tmp")


@dataclass(frozen=True, slots=True)
class FileName:
    """The program's name of its source, and its name in the cache."""

    given: str
    kept: str
    stems: tuple[bytes, bytes] | None = None
    """The word of the name in which something was made up, as given and as kept; None if nothing was."""

    def to_keep(self, data: bytes) -> bytes:
        """The compiler's result as it is kept."""
        return data if self.stems is None else data.replace(self.stems[0], self.stems[1])

    def to_give(self, data: bytes) -> bytes:
        """The kept result as the program must get it."""
        return data if self.stems is None else data.replace(self.stems[1], self.stems[0])

    def is_in(self, texts: Iterable[bytes]) -> bool:
        """Whether some texts contain the made-up part, or its replacement."""
        return self.stems is not None and any(stem in text for text in texts for stem in self.stems)

    def is_in_numbers(self, data: bytes) -> bool:
        """Whether a text contains the made-up part as PTX writes strings, which is never replaced."""
        return self.stems is not None and ", ".join(map(str, self.stems[0][-len(KEPT) :])).encode() in data


def read_name(given: str, environ: Mapping[str, str], known: str = "") -> FileName:
    """The name of a source, part of which Python's module ``tempfile`` may have made up.

    Then the file exists while the source is compiled, for its user alone; or the name has the module's own
    prefix and is gone, like the directory that CuPy leaves before it compiles. Any other name counts
    unchanged. ``known`` is the name in the cache where it has been found earlier.
    """
    places = dict.fromkeys((*filter(None, map(environ.get, _VARIABLES)), *_PLACES))
    place = next((one for one in map(os.path.normpath, places) if given.startswith(f"{one}/")), None)
    if place is None:
        return FileName(given, given)
    parts = given.removeprefix(f"{place}/").split("/")
    for number, part in enumerate(parts):
        match = _MADE_UP.fullmatch(part)
        made = Path(place, *parts[: number + 1])
        if match is None:
            continue
        kept = f"{match[1]}{KEPT}{match[3] or ''}"
        whole = "/".join((place, *parts[:number], kept, *parts[number + 1 :]))
        below = "".join(parts[number + 1 :][:1])
        if whole == known if known else _is_made(made, below, gone=match[1] == _PREFIX):
            stems = os.fsencode(match[1] + match[2]), os.fsencode(match[1] + KEPT)
            return FileName(given, whole, stems)
    return FileName(given, given)


def _is_made(path: Path, below: str, *, gone: bool) -> bool:
    """Whether ``tempfile`` has made a file, or a directory that contains only the path ``below`` it.

    A source that is alone in its directory includes nothing from there. ``gone`` is the result if nothing
    exists.
    """
    try:
        status = path.lstat()
        alone = not below or set(os.listdir(path)) <= {below}  # noqa: PTH208 - names are enough
    except FileNotFoundError:
        return gone
    except (OSError, ValueError):
        return False
    mode = stat.S_IFDIR | 0o700 if below else stat.S_IFREG | 0o600
    return alone and status.st_uid == os.geteuid() and status.st_mode & ~stat.S_ISGID == mode
