"""What lies in PoCL's cache without being a program: temporary files, failed builds, strangers.

Owns the groups in which they are told, as there may be thousands of each, and which of a group may be
removed: what is older than ten minutes, as PoCL has no locks that would say what is in use. A group is
named by a pattern below the root.

Owns as well which programs no PoCL of this machine may find any more, as far as that can be told. The version
of LLVM is in the hash, and the name of the LLVM that made it in each program. Two PoCLs may share a cache. So
programs of an LLVM are called out of reach only if none of them was used since programs of another LLVM
appeared, nor for a week. A rebuild of PoCL with the same LLVM changes the hash as well, and is seen by
nothing on disk. Must not change anything.
"""

import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import files
from gpucache.caches.files import Files
from gpucache.caches.layout import Layout
from gpucache.caches.pocl import names
from gpucache.caches.pocl.checks import MINIMUM_AGE_NS
from gpucache.caches.pocl.program import Program, stays
from gpucache.caches.pocl.removal import is_own_temporary
from gpucache.caches.pocl.tree import Role, tree_of
from gpucache.folders import Folder
from gpucache.units import format_instant, format_size, printable

FAILED = f"*/*/{names.LOG}"
BARE = "*/*/*.so"
WEEK_NS = 7 * 86_400 * 10**9
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

    def strange(self, name: str) -> None:
        """Count a stranger."""
        self.stranger_count += 1
        if len(self.strangers) < _TOLD:
            self.strangers.append(name)

    def young(self, root: Path) -> str:
        """How many are not old enough to be told, as a note; empty for none."""
        young = sum(group.young for group in self.groups.values())
        if not young:
            return ""
        return (
            f"temporary or unfinished files and folders in {root} that are younger than 10 minutes, so that "
            f"they may be in use and are left alone: {young}"
        )


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


@dataclass(slots=True)
class _Builder:
    llvm: str
    first_ns: int
    last_ns: int
    count: int = 0
    size_bytes: int = 0

    def add(self, made_ns: int, used_ns: int, size_bytes: int) -> None:
        self.first_ns = min(self.first_ns, made_ns)
        self.last_ns = max(self.last_ns, used_ns)
        self.count += 1
        self.size_bytes += size_bytes


def gather(root: Path, layout: Layout, now_ns: int) -> Remains:
    """What is no entry; raises OSError where the root cannot be read."""
    found = Remains(_groups())
    with files.open_folder(root) as top:
        present = sorted(entry.name for entry in top.entries())
        for name in present:
            _sort(top, name, found, now_ns)
    for item in layout.items(root):
        _look_into(item, found, now_ns)
    return found


def problems(found: Remains, root: Path) -> Iterator[tuple[Path, Problem]]:
    """The remains by their place, one problem for each group."""
    for pattern, group in found.groups.items():
        if group.places:
            detail = f"{group.detail}: {len(group.places)} ({format_size(group.size_bytes)})"
            yield root / pattern, Problem(group.kind, detail)
    for name in found.links:
        detail = "it is a link, which PoCL follows and gpucache does not; remove it"
        yield root / name, Problem(FindingKind.UNTRUSTED, detail)
    if found.stranger_count:
        listed = ", ".join(map(printable, found.strangers))
        more = found.stranger_count - len(found.strangers)
        detail = f"{listed}{f' and {more} more' if more else ''}: none of PoCL's; keep it elsewhere"
        yield root, Problem(FindingKind.LEFTOVER, detail)


def is_foreign(root: Path) -> bool:
    """Whether a folder holds other names than those of a cache, and no program's folder. Raises nothing."""
    try:
        with files.open_folder(root) as top:
            return not _is_ours(top, [entry.name for entry in top.entries()])
    except (OSError, ValueError):
        return False


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
        return is_own_temporary(top, name)
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


def _look_into(item: Files, found: Remains, now_ns: int) -> None:
    tree = tree_of(item)
    if tree.program is not None:
        return
    compiled = tree.of(Role.BINARY) or tree.of(Role.DEVICE)
    newest = max(status.st_mtime_ns for status in item.seen.values())
    if not stays(tree):
        found.groups[BARE if compiled else FAILED].add(item.parts, tree.size_bytes, now_ns - newest)
    else:
        found.strange("/".join(item.parts))


def out_of_reach(programs: Iterable[Program], root: Path, now_ns: int) -> Iterator[tuple[Path, Problem]]:
    """A problem for each LLVM of which nothing was used since the newest appeared, nor for a week."""
    builders: dict[str, _Builder] = {}
    for one in programs:
        if one.llvm and one.tree.program is not None:
            made_ns, used_ns = one.tree.program.status.st_mtime_ns, one.tree.accessed_ns
            found = builders.setdefault(one.llvm, _Builder(one.llvm, made_ns, used_ns))
            found.add(made_ns, used_ns, one.tree.size_bytes)
    if not builders:
        return
    newest = max(builders.values(), key=lambda one: (one.first_ns, one.llvm))
    for old in sorted(builders.values(), key=lambda one: one.llvm):
        if old.last_ns < min(newest.first_ns, now_ns - WEEK_NS):
            detail = (
                f"programs of LLVM {old.llvm}, which a PoCL with another LLVM never finds: {old.count} "
                f"({format_size(old.size_bytes)}), last used {format_instant(old.last_ns)}, before those of "
                f"LLVM {newest.llvm} came; run 'gpucache evict --cache {shlex.quote(f'pocl:{root}')} "
                f"--unlike LLVM={newest.llvm}'"
            )
            yield root / f"LLVM {old.llvm}", Problem(FindingKind.STALE, detail)
