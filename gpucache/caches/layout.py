"""The layout of a cache's files below its root, and the walk that finds them.

A layout is made of patterns: parts of a path with slashes between, each part a regular expression that must
match a whole name, so no part may contain a slash itself; a part can refer back to a group of an earlier
part, as for a file named like its directory. A pattern matches names only as the owner writes them: other
letters, spaces and cases are foreign. Owns the walk, which is bounded in depth, follows no link, and
tolerates the owner removing and renaming things meanwhile. Must not read files or judge them.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, lru_cache
from hashlib import sha1
from itertools import accumulate, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from gpucache.caches import files
from gpucache.caches.files import HERE, Files, tree
from gpucache.folders import Folder

LINK, STRANGER = "link", "stranger"
"""Roles of paths in an entry's directory: a link; a name that fits no pattern or is a copy by a person."""
_NAMES_LOOKED_AT = 1000
VERSION = r"\d+(?:\.\d+)+(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?"
"""The version of a Python package as PEP 440 writes it, as the name of a directory."""
_COPY = re.compile(r"(?i:copy(?: \(\d+\))? of .+|.+ (?:\(\w+\)|(?:- )?copy(?: \d+)?)(?:\.\w+)*)", re.DOTALL)
_COPY_ENDINGS = ("~", ".bak", ".old", ".orig")


def _passed(_: object) -> None: ...


def hashed(names: Sequence[str]) -> str:
    """40 hex digits for a key if the owner's names have none, or too few to distinguish two entries."""
    return sha1("/".join(names).encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def is_copy(name: str) -> bool:
    """Whether a name is one that file managers or editors give to copies, which no program reads."""
    # Nearly all names have neither, and a scan asks about each.
    return name[1:].lower().endswith(_COPY_ENDINGS) or (" " in name and _COPY.fullmatch(name) is not None)


class Left(NamedTuple):
    """A pattern of files that a stopped writer leaves, or of directories if it ends in a slash.

    Those younger than an hour may be in use, and are not reported.
    """

    pattern: str
    """A group named ``pid`` is the number of the writer's process."""
    sure: bool = False
    """Whether no other program names a file like this. Otherwise its content decides whose it is, unless its
    name has the number of a process."""


@dataclass(frozen=True)
class Layout:
    """The files of a cache, by their place below the root."""

    entries: str | Sequence[str]
    """Patterns of the files of an entry, or of its directory if the pattern ends in a slash. The groups of a
    pattern are the key. Files of one directory with one key are one entry, whose first file is the one that
    matches the first pattern."""
    left: Sequence[Left] = ()
    own: Sequence[str] = ()
    """Patterns of the owner's other files: locks, marks, totals, and, ending in a slash, directories. They
    are not strangers, and are not read or removed."""
    signs: Sequence[str] = ()
    """Patterns of names that identify the owner of a directory; the patterns of entries if there are none."""
    key: Callable[[Sequence[str]], str] | None = None
    """A function that makes the key from a pattern's groups; by default they are joined."""
    inside: Sequence[tuple[str, str]] = ()
    """If an entry is a directory: the roles of its content, each with the pattern of its path below that
    directory, with a slash at the end for directories; the first match counts."""

    def items(
        self, root: Path, prefix: str = "", beside: "Callable[[Node], object]" = _passed
    ) -> Iterator[Files]:
        """Every entry whose key begins with some digits, in the order of names in each directory.

        Raises OSError if the root cannot be read. All other nodes, including the directories walked, are
        passed to ``beside``; with a prefix those elsewhere are not known, and only unreadable ones are.
        """
        with files.open_folder(root) as folder:
            for one in self._walk(folder, root, (), [(way, ()) for way in self._ways], prefix):
                if isinstance(one, Files):
                    yield one
                elif not prefix or one.error is not None:
                    beside(one)

    def role(self, path: str, *, folder: bool) -> str:
        """The role of a path in an entry's directory, ``STRANGER`` for one that fits no pattern."""
        name = f"{path}/" if folder else path
        return next((role for role, pattern in self._inside if pattern.fullmatch(name)), STRANGER)

    def roles(self, item: Files) -> Mapping[str, Sequence[str]]:
        """The content of an entry's directory by role, including links and strangers, in the order of names.

        The content of a stranger is not examined; a mount point is always a stranger, under any name.
        """
        found: dict[str, list[str]] = {role: [] for role in (LINK, STRANGER, *dict(self.inside))}
        folders = {""}
        for name, status in item.seen.items():
            above, _, last = name.rpartition("/")
            if name == HERE or above not in folders:
                continue
            role, folder = STRANGER, stat.S_ISDIR(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                role = LINK
            elif (folder or stat.S_ISREG(status.st_mode)) and not is_copy(last):
                role = self.role(name, folder=folder) if status.st_dev == item.seen[HERE].st_dev else STRANGER
            if folder and role != STRANGER:
                folders.add(name)
            found[role].append(name)
        return found

    @cached_property
    def _inside(self) -> list[tuple[str, re.Pattern[str]]]:
        return [(role, re.compile(pattern, re.DOTALL)) for role, pattern in self.inside]

    def key_at(self, parts: Sequence[str]) -> str:
        """The key of the entry with a file at a place, by its names; empty if no entry has such a name."""
        found = ((way, way.fits(parts)) for way in self._entry_ways if len(way.parts) == len(parts))
        return next((self._keyed(match.groups()) for way, match in found if match), "")

    def left_at(self, parts: Sequence[str]) -> tuple[Left, int | None] | None:
        """The leftover at a place, if its names show one, with the number of its writer's process."""
        for way in self._ways:
            if way.left and len(way.parts) == len(parts) and (match := way.fits(parts)):
                pid = match.groupdict().get("pid")
                return way.left, int(pid) if pid else None
        return None

    def is_own(self, parts: Sequence[str]) -> bool:
        """Whether a place is that of one of the owner's other files, by its names."""
        ways = (way for way in self._ways if way.own and not way.folder and len(way.parts) == len(parts))
        return any(way.fits(parts) for way in ways)

    def whose(self, root: Path) -> "Whose":
        """The owner of a directory, as far as the names in it show; raises OSError.

        It is foreign if it is not empty and nothing in it shows that it is the owner's.
        """
        signs = [_compiled(one) for one in self.signs] or self._entry_ways
        aside = [way for way in self._ways if way.left is not None or way.own]
        with files.open_folder(root) as folder:
            names = [found.name for found in islice(folder.entries(), _NAMES_LOOKED_AT)]
            strange = not all(any(way.fits((name,)) for way in aside) for name in names)
            if strange and not any(_follows(folder, sign, (), empty=True) for sign in signs):
                return Whose.FOREIGN
            held = any(_follows(folder, way, (), empty=False) for way in self._entry_ways)
        return Whose.OWN if held else Whose.UNKNOWN

    @cached_property
    def _entry_ways(self) -> "list[_Way]":
        patterns = (self.entries,) if isinstance(self.entries, str) else self.entries
        return [_compiled(pattern, rank=rank) for rank, pattern in enumerate(patterns)]

    @cached_property
    def _ways(self) -> "list[_Way]":
        left = [_compiled(one.pattern, left=one) for one in self.left]
        return [*self._entry_ways, *left, *(_compiled(one, own=True) for one in self.own)]

    def _walk(
        self, folder: Folder, root: Path, parts: tuple[str, ...], steps: "list[_Step]", prefix: str
    ) -> "Iterator[Files | Node]":
        """Everything below an open directory; other nodes than entries mean nothing with a prefix."""
        # By name: that fails if a directory may be listed but not entered.
        yield Node(Role.FOLDER, parts, folder.lstat(os.curdir))
        entries: dict[str, list[tuple[int, str]]] = {}
        folders: list[tuple[str, list[_Step]]] = []
        others: list[tuple[str, Role]] = []
        for found in folder.entries():
            role, on = self._sort(found, steps, parts, prefix)
            if role is Role.ENTRY:
                entries.setdefault(self._keyed(on[0][1]), []).append((on[0][0].rank, found.name))
            elif role is Role.FOLDER:
                folders.append((found.name, on))
            elif role is not Role.OWN and not prefix:
                others.append((found.name, role))
        for name, role in sorted(others, key=itemgetter(0)):
            yield from _node(role, folder, (*parts, name))
        for key in sorted(key for key in entries if key.startswith(prefix)):
            yield from _files(folder, root, parts, key, entries[key])
        for name, on in sorted(folders, key=itemgetter(0)):
            yield from self._into(folder, name, root, (*parts, name), on, prefix)

    def _into(
        self,
        folder: Folder,
        name: str,
        root: Path,
        parts: tuple[str, ...],
        on: "list[_Step]",
        prefix: str,
    ) -> "Iterator[Files | Node]":
        """The content of a directory that is an entry or contains entries."""
        try:
            with folder.folder(name) as inner:
                if len(on[0][0].parts) > len(parts):
                    yield from self._walk(inner, root, parts, on, prefix)
                elif (key := self._keyed(on[0][1])).startswith(prefix):
                    yield tree(inner, root, parts, key)
        except FileNotFoundError:
            return
        except OSError as error:
            yield from _node(Role.CLOSED, folder, parts, error=error)

    def _sort(
        self, found: "os.DirEntry[str]", steps: "list[_Step]", above: tuple[str, ...], prefix: str
    ) -> "tuple[Role, list[_Step]]":
        depth, name = len(above), found.name
        path = "/".join((*above, name))
        folder = found.is_dir(follow_symlinks=False)
        ends: list[_Step] = []
        deeper: list[_Step] = []
        blocked: list[_Step] = []
        known: dict[tuple[str, ...], tuple[str, ...]] = {}  # many patterns have the same groups
        for way, _ in () if is_copy(name) else steps:
            if len(way.parts) <= depth or not (match := way.parts[depth].fullmatch(path)):
                continue
            groups = known.setdefault(found_groups := match.groups(), found_groups)
            # The digits so far show which directories can contain the key.
            digits = "".join(groups)
            if prefix and self.key is None and not (digits.startswith(prefix) or prefix.startswith(digits)):
                continue
            last = len(way.parts) == depth + 1
            (deeper if not last else ends if way.folder is folder else blocked).append((way, groups))
            if ends:  # the first decides
                break
        if folder and deeper and not ends:
            return Role.FOLDER, deeper
        if folder and not ends:  # in the place of a file
            if any(way.own for way, _ in blocked):
                return Role.BLOCKING, []
            ends = [step for step in blocked if step[0].entry]
        if ends:
            way = ends[0][0]
            role = Role.FOLDER if way.folder else Role.ENTRY
            return (role if way.entry else Role.OWN if way.own else Role.LEFT), ends
        return (Role.LINK if (deeper or blocked) and found.is_symlink() else Role.STRANGER), []

    @cached_property
    def _keyed(self) -> Callable[[tuple[str, ...]], str]:
        """The key from groups; the last one is remembered, as files of one directory mostly share it."""
        return lru_cache(maxsize=16)(self.key or "".join)


class Whose(Enum):
    """The owner of a place, by its content."""

    OWN = auto()
    """The place is the owner's, as it has an entry."""
    FOREIGN = auto()
    """The place is foreign: it has files, but none of the owner's."""
    UNKNOWN = auto()
    """The place is empty, does not exist, or has nothing that shows its owner."""


class Role(Enum):
    """The kind of something below the root."""

    ENTRY = auto()
    OWN = auto()
    FOLDER = auto()
    """A directory on the way to entries, which may be trusted or not."""
    LEFT = auto()
    LINK = auto()
    """A link with the name of a directory or a file of the owner's."""
    STRANGER = auto()
    CLOSED = auto()
    """A directory with the owner's name that cannot be opened."""
    BLOCKING = auto()
    """A directory in the place of one of the owner's files; that of an entry's file is part of the entry."""


class Node(NamedTuple):
    """A node below the root that is not an entry: its place, and its status, links not followed."""

    role: Role
    parts: tuple[str, ...]
    status: os.stat_result
    error: OSError | None = None


class _Way(NamedTuple):
    parts: tuple[re.Pattern[str], ...]
    """For each part the pattern of the path up to and including it."""
    folder: bool
    left: Left | None = None
    own: bool = False
    rank: int = 0

    @property
    def entry(self) -> bool:
        return self.left is None and not self.own

    def fits(self, path: Sequence[str]) -> "re.Match[str] | None":
        """The match of the beginning of the pattern with as many names."""
        # A name has no slash, so each slash of the pattern matches one of the path.
        return None if is_copy(path[-1]) else self.parts[len(path) - 1].fullmatch("/".join(path))


_Step = tuple[_Way, tuple[str, ...]]
"""A pattern that fits so far, and the values of its groups."""


def _compiled(pattern: str, *, left: Left | None = None, own: bool = False, rank: int = 0) -> _Way:
    parts = accumulate((f"(?:{part})" for part in pattern.removesuffix("/").split("/")), "{}/{}".format)
    compiled = tuple(re.compile(part, re.DOTALL) for part in parts)
    return _Way(compiled, pattern.endswith("/"), left, own, rank)


def _node(role: Role, folder: Folder, parts: tuple[str, ...], error: OSError | None = None) -> Iterator[Node]:
    with suppress(FileNotFoundError):  # it was removed meanwhile
        yield Node(role, parts, folder.lstat(parts[-1]), error)


def _files(
    folder: Folder, root: Path, parts: tuple[str, ...], key: str, names: list[tuple[int, str]]
) -> Iterator[Files]:
    seen = {}
    for _, name in sorted(names):
        with suppress(FileNotFoundError):
            seen[name] = folder.lstat(name)
    if seen:
        yield Files(root, parts, key, seen)


def _follows(folder: Folder, sign: _Way, above: tuple[str, ...], *, empty: bool) -> bool:
    """Whether names match along a pattern; an unreadable directory may match it with ``empty``."""
    for found in islice(folder.entries(), _NAMES_LOOKED_AT):
        path = (*above, found.name)
        if not sign.fits(path):
            continue
        if len(sign.parts) == len(path):
            return True
        try:
            with folder.folder(found.name) as inner:
                if _follows(inner, sign, path, empty=empty) or (empty and not any(inner.entries())):
                    return True
        except OSError as error:
            if empty and (isinstance(error, PermissionError) or found.is_symlink()):
                return True
    return False
