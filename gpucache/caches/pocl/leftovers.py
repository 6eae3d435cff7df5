"""What lies in PoCL's cache without being a program: temporary files, failed builds, strangers.

Owns the groups in which they are told, as there may be thousands of each, and which of a group may be
removed: what is older than ten minutes, as PoCL has no locks that would say what is in use. A group is
named by a pattern below the root. Must not change anything.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.pocl import entries, names
from gpucache.caches.pocl.checks import MINIMUM_AGE_NS
from gpucache.caches.pocl.tree import Role, read_tree
from gpucache.folders import Folder
from gpucache.outcomes import Checked, Finding, FindingKind
from gpucache.units import format_size

FAILED = f"*/*/{names.LOG}"
BARE = "*/*/*.so"
_TOLD = 8


@dataclass(slots=True)
class Group:
    """Things of one kind that are old enough to be removed: how many, what they take, and where they are."""

    detail: str
    kind: FindingKind = FindingKind.LEFTOVER
    size_bytes: int = 0
    places: list[tuple[str, ...]] = field(default_factory=list)
    """Parts below the root."""
    young: int = 0

    def add(self, place: tuple[str, ...], size_bytes: int, age_ns: int) -> None:
        """Count one more."""
        if age_ns > MINIMUM_AGE_NS:
            self.places.append(place)
            self.size_bytes += size_bytes
        else:
            self.young += 1


@dataclass(slots=True)
class Remains:
    """Everything in the root that is no entry: removable groups by pattern, links, and strangers."""

    groups: dict[str, Group]
    links: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    stranger_count: int = 0
    foreign: bool = False
    """Whether the folder is none of PoCL's at all, so that nothing in it was looked at."""

    def strange(self, name: str) -> None:
        """Count a stranger."""
        self.stranger_count += 1
        if len(self.strangers) < _TOLD:
            self.strangers.append(name)


def _groups() -> dict[str, Group]:
    return {
        "tempfile*": Group("temporary files, of which every start of PoCL leaves an empty one"),
        "tempdir*": Group("temporary folders of programs that died"),
        "_UNCACHED*": Group("folders of programs that were built with POCL_KERNEL_CACHE=0 and died"),
        FAILED: Group("folders of builds that failed or were not finished", FindingKind.ORPHAN),
        BARE: Group(
            "folders with kernels but no program, which PoCL compiles again before it takes these",
            FindingKind.ORPHAN,
        ),
    }


def gather(root: Path, now_ns: int) -> Remains:
    """What is no entry; raises OSError where the root cannot be read."""
    found = Remains(_groups())
    with files.open_folder(root) as top:
        present = sorted(entry.name for entry in top.entries())
        found.foreign = not _is_ours(top, present)
        if found.foreign:
            return found
        for name in present:
            _sort(top, name, found, now_ns)
    for pair, rest in entries.programs(root):
        _look_into(root, pair, rest, found, now_ns)
    return found


def told(found: Remains, root: Path) -> Iterator[Checked]:
    """The remains as findings, one for each group."""
    if found.foreign:
        detail = f"{root} is no cache of PoCL, so nothing in it is looked at; name the folder of one"
        yield _checked(root, root.name, FindingKind.UNSUPPORTED, detail)
        return
    for pattern, group in found.groups.items():
        if group.places:
            detail = f"{group.detail}: {len(group.places)} ({format_size(group.size_bytes)})"
            yield _checked(root / pattern, pattern, group.kind, detail)
    for name in found.links:
        detail = "it is a link, which PoCL follows and gpucache does not; remove it"
        yield _checked(root / name, entries.shown(name), FindingKind.UNTRUSTED, detail)
    if found.stranger_count:
        listed = ", ".join(map(entries.shown, found.strangers))
        more = found.stranger_count - len(found.strangers)
        detail = f"{listed}{f' and {more} more' if more else ''}: none of PoCL's; keep it elsewhere"
        yield _checked(root, root.name, FindingKind.LEFTOVER, detail)
    young = sum(group.young for group in found.groups.values())
    if young:
        note = (
            f"temporary or unfinished files and folders in {root} that are younger than 10 minutes, so that "
            f"they may be in use and are left alone: {young}"
        )
        yield Checked(str(root), notes=(note,), counts=False)


def unread(root: Path) -> str:
    """That a folder which is there may not be read; empty where it may. Raises nothing."""
    there = os.path.isdir(root)  # noqa: PTH112 - Path.is_dir raises below a folder that may not be entered
    if not there or os.access(root, os.R_OK | os.X_OK):
        return ""
    return f"{root} may not be read by this user, so what it holds is not known; set POCL_CACHE_DIR"


def unreadable(root: Path, problems: Sequence[str], error: OSError) -> Checked:
    """A root that cannot be read, in the words of its location where those tell it."""
    known = (one for one in problems if "may not be read" in one or "cannot be looked at" in one)
    detail = next(known, f"{root} cannot be read ({error.strerror}), so what it holds is not known")
    return _checked(root, root.name, FindingKind.UNTRUSTED, detail)


def _is_ours(top: Folder, present: Sequence[str]) -> bool:
    """Whether a folder is a cache: it holds no other names than a cache's, or a program's folder."""
    if all(names.is_pair(name) or names.temporary_group(name) for name in present):
        return True
    return any(_holds_program(top, name) for name in filter(names.is_pair, present))


def _holds_program(top: Folder, pair: str) -> bool:
    try:
        with top.folder(pair) as folder:
            return any(names.is_rest(entry.name) for entry in folder.entries())
    except OSError:
        return False


def _sort(top: Folder, name: str, found: Remains, now_ns: int) -> None:
    try:
        status = top.lstat(name)
    except FileNotFoundError:
        return
    group = names.temporary_group(name)
    if stat.S_ISLNK(status.st_mode):
        (found.links.append if group is None and names.is_pair(name) else found.strange)(name)
    elif group is not None and _is_own(top, name):
        size = files.allocated_bytes(status)
        found.groups[f"{group}*"].add((name,), size, now_ns - status.st_mtime_ns)
    elif names.is_pair(name) and stat.S_ISDIR(status.st_mode):
        _within(top, name, found)
    else:
        found.strange(name)


def _is_own(top: Folder, name: str) -> bool:
    try:
        return entries.is_own_temporary(top, name)
    except OSError:
        return False


def _within(top: Folder, pair: str, found: Remains) -> None:
    """What is strange in a folder of programs."""
    try:
        with top.folder(pair) as folder:
            for name in sorted(entry.name for entry in folder.entries()):
                mode = folder.lstat(name).st_mode
                if names.is_rest(name) and stat.S_ISLNK(mode):
                    found.links.append(f"{pair}/{name}")
                elif not names.is_rest(name) or not stat.S_ISDIR(mode):
                    found.strange(f"{pair}/{name}")
    except OSError:
        return


def _look_into(root: Path, pair: str, rest: str, found: Remains, now_ns: int) -> None:
    try:
        tree = read_tree(root, pair, rest)
    except OSError:
        return
    if tree.program is not None:
        return
    compiled = tree.of(Role.BINARY) or tree.of(Role.DEVICE)
    newest = max([tree.status.st_mtime_ns, *(item.status.st_mtime_ns for item in tree.items)])
    if not entries.stays(tree):
        found.groups[BARE if compiled else FAILED].add((pair, rest), tree.size_bytes, now_ns - newest)
    else:
        found.strange(f"{pair}/{rest}")


def _checked(place: Path, name: str, kind: FindingKind, detail: str) -> Checked:
    return Checked(str(place), (Finding(entries.NAME, name, kind, detail),), counts=False)
