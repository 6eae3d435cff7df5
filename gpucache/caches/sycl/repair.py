"""Making a cache one that programs hit again: a whole folder of entries at once, and what is no entry.

Only locks that count as held by nobody are broken, and every number is locked while it is touched.
Done twice it changes nothing. Must not decide what is wrong: ``checks`` and ``non_entries`` do.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.caches import places
from gpucache.caches.sycl import checks, locks, naming, non_entries, removal, slots, tree
from gpucache.caches.sycl.checks import Verdict
from gpucache.caches.sycl.locks import BusyError, held
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.tree import Listing
from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder

_KEPT_WITH = frozenset({FindingKind.UNTRUSTED})  # an owner or mode is for people to change
_TIME_MODE = 0o644


def require_own(root: Path) -> None:
    """Raise CacheUnusableError for a root that others own or may write to."""
    try:
        doubt = places.distrust(root.stat(), move="repair it as its owner")
    except OSError as error:
        raise CacheUnusableError(
            f"{root} cannot be repaired: {error.strerror}; name another cache"
        ) from error
    if doubt:
        raise CacheUnusableError(f"{root} is not repaired: {doubt}")


def repair_group(root: Path, group: Group) -> None:
    """Drop what no program should find in a folder, close the holes, free the locks; raises OSError."""
    before = non_entries.group_bytes(root, group)
    try:
        with suppress(BusyError), tree.open_group(root, group) as folder:
            _repair(folder, group)
    except FileNotFoundError:
        return
    tree.remove_empty(root, group.parts)
    change = non_entries.group_bytes(root, group) - before
    if change:
        non_entries.adjust(root, change)


def repair_other(root: Path, path: Path) -> None:
    """Take away one thing that is no entry, if that is ours to do; raises OSError, CacheUnusableError."""
    if path.name.startswith((root.name + naming.EVICTION, naming.EVICTION)) and path.parent in (
        root,
        root.parent,
    ):
        non_entries.clear_eviction(path)
        return
    parts = path.relative_to(root).parts
    if parts == (naming.SIZE_FILE,):
        _mend_size(root)
    elif parts == (naming.SIZE_LOCK,):
        with Folder.at(root) as folder:
            locks.break_stale(folder, naming.SIZE_LOCK)
    else:
        _repair_below(root, parts)


def _repair_below(root: Path, parts: tuple[str, ...]) -> None:
    group = naming.group_of(parts) or naming.group_of(parts[:-1])
    if group is not None and not _is_link(root, parts):
        repair_group(root, group)
    elif naming.is_made(parts) and _is_link(root, parts):
        with tree.open_part(root, parts[:-1]) as above:
            above.unlink(parts[-1])
    elif naming.leads_on(parts):
        tree.remove_empty(root, parts)


def _is_link(root: Path, parts: tuple[str, ...]) -> bool:
    with tree.open_part(root, parts[:-1]) as above:
        return len(parts) > 0 and stat.S_ISLNK(above.lstat(parts[-1]).st_mode)


def _mend_size(root: Path) -> None:
    with Folder.at(root) as folder:
        if not stat.S_ISREG(folder.lstat(naming.SIZE_FILE).st_mode):
            folder.unlink(naming.SIZE_FILE)  # libsycl makes a new one
            return
    non_entries.rewrite(root, non_entries.summed_bytes(root))


def _repair(folder: Folder, group: Group) -> None:
    if not _free_locks(folder, tree.listing(folder)):
        return  # a program may be writing: its folder is left as it is
    found = tree.listing(folder)
    stems = found.stems
    places_needed = [] if group.family is Family.IR else [str(number) for number in range(len(stems))]
    with held(folder, removal.lock_names(sorted({*stems, *places_needed}))):
        own = [stem for stem in stems if not slots.stranger(folder, slots.look(folder, group, stem))]
        kept = _sift(folder, group, own)
        if group.family is not Family.IR and own == stems:  # else one would take a stranger's place
            kept = _renumber(folder, kept)
        for stem in kept:
            _mend_time(folder, slots.look(folder, group, stem))
    _drop_times(folder)
    removal.close_holes(folder, group)


def _free_locks(folder: Folder, found: Listing) -> bool:
    """Remove the locks that nobody holds; whether none is left."""
    names = [
        stem + suffix
        for stem, suffixes in found.files.items()
        for suffix in (naming.LOCK, naming.ACCESS_LOCK)
        if suffix in suffixes
    ]
    return all(locks.break_stale(folder, name) for name in names)


def _sift(folder: Folder, group: Group, stems: Sequence[str]) -> list[str]:
    """Delete what is unsound and every copy but the lowest; what is left."""
    kept: list[str] = []
    answered: set[str] = set()
    for stem in stems:
        slot = slots.look(folder, group, stem)
        verdict = checks.judge(folder, slot)
        if _doomed(slot, verdict) or (verdict.digest and verdict.digest in answered):
            removal.delete(folder, stem)
        else:
            kept.append(stem)
            answered.add(verdict.digest)
    return kept


def _doomed(slot: Slot, verdict: Verdict) -> bool:
    there = [one for one in (slot.binary, slot.source) if one]
    if any(not stat.S_ISREG(one.st_mode) for one in there):
        return True
    return any(problem.kind not in _KEPT_WITH for problem in verdict.problems)


def _renumber(folder: Folder, stems: Sequence[str]) -> list[str]:
    for number, stem in enumerate(stems):
        if stem != str(number):
            removal.move(folder, stem, str(number))
    return [str(number) for number in range(len(stems))]


def _mend_time(folder: Folder, slot: Slot) -> None:
    if slot.binary is None or not checks.needs_time(folder, slot):
        return
    name = slot.stem + naming.ACCESS
    with suppress(FileNotFoundError):
        folder.unlink(name)
    fd = folder.open_for_writing(name, os.O_WRONLY | os.O_EXCL, _TIME_MODE)
    try:
        os.write(fd, str(slot.binary.st_mtime_ns).encode())
    finally:
        os.close(fd)


def _drop_times(folder: Folder) -> None:
    """Remove the times of entries that are gone."""
    found = tree.listing(folder)
    for stem, suffixes in found.files.items():
        if naming.ACCESS not in suffixes or found.present(stem) or naming.LOCK in suffixes:
            continue
        if _holds_time(folder, stem):
            with suppress(FileNotFoundError):
                folder.unlink(stem + naming.ACCESS)


def _holds_time(folder: Folder, stem: str) -> bool:
    """Whether a file with the name of an access time holds one, or is empty; others may be somebody's own."""
    if slots.access_number(folder, stem) is not None:
        return True
    with suppress(FileNotFoundError):
        return folder.lstat(stem + naming.ACCESS).st_size == 0
    return False
