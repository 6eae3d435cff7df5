"""What lies beside the entries: the file with their size, locks, strangers; and limits that the size breaks.

The locks of eviction are named by the root's path with a suffix: they lie beside the root, or in it where
SYCL_CACHE_DIR ends in a slash. Programs wait for the name without ``.lock``, which none of them makes. Must
not know entries' formats. Source: libsycl, ``persistent_device_code_cache.cpp``
(``updateCacheFileSizeAndTriggerEviction``, ``evictItemsFromCache``).
"""

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpucache.answers.entries import FindingKind, Location, Problem
from gpucache.caches import files
from gpucache.caches.sycl import locations, locks, naming, slots, tree
from gpucache.caches.sycl.locations import MAX_IMAGE, MAX_SIZE, MIN_IMAGE, Bounds
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.tree import Listing, Stray
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.units import format_size

_TIMES = "programs no longer note when the entry was used, and eviction takes it too early"


Left = tuple[Path, Problem]
SLACK_BYTES = 64 << 10
_LIMIT_BYTES = 4096
_NUMBER = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]{1,20})(?![0-9])")
"""Of more digits than an unsigned 64-bit number has, none are read."""
_SIZE_LIKE = re.compile(rb"[\s\0+-]*+[0-9]*+[\s\0]*+")
"""What libsycl writes, and what a crash can make of it; anything else is somebody else's."""
_NO_SIZE = "is none that libsycl wrote, so it stays; move it elsewhere"
_WRITERS_DIE = "a program with SYCL_CACHE_MAX_SIZE set dies of an uncaught exception when it adds an entry"


def leftovers(root: Path) -> Iterator[Left]:
    """Every stray thing, then the file of the size and the locks. Raises nothing."""
    summed = 0
    for item in tree.walk(root):
        if isinstance(item, Stray):
            detail = f"{'/'.join(item.parts) or root}: {item.detail}"
            yield root.joinpath(*item.parts), Problem(item.kind, detail)
        else:
            summed += group_bytes(root, item)
            yield from _of_group(root, item)
    if problem := size_problem(root, summed):
        yield root / naming.SIZE_FILE, problem
    if lock := size_lock(root):
        yield root / naming.SIZE_LOCK, lock
    yield from eviction_files(root)


def _of_group(root: Path, group: Group) -> Iterator[Left]:
    place = root.joinpath(*group.parts)
    try:
        with tree.open_group(root, group) as folder:
            listing = tree.listing(folder)
            if not listing.files and not listing.foreign:
                empty = f"{'/'.join(group.parts)} is empty, as eviction leaves it"
                yield place, Problem(FindingKind.LEFTOVER, empty)
            for name, problem in _in_group(folder, listing, f"of {group.hex[:12]}"):
                yield place / name, problem
    except OSError:
        return  # gone meanwhile


def _in_group(folder: Folder, listing: Listing, where: str) -> Iterator[tuple[str, Problem]]:
    """Names in a group's folder that belong to no entry, each with what it does."""
    for name in listing.foreign:
        detail = f"{name} beside the entries {where} is none of libsycl's and is left alone"
        yield name, Problem(FindingKind.LEFTOVER, detail)
    for stem, suffixes in sorted(listing.files.items(), key=lambda item: naming.order(item[0])):
        present = listing.present(stem)
        if naming.ACCESS in suffixes and not present and naming.LOCK not in suffixes:
            detail = f"{stem}{naming.ACCESS} {where} has the last use of an entry that is gone"
            yield stem + naming.ACCESS, Problem(FindingKind.ORPHAN, detail)
        if naming.LOCK in suffixes and not present:
            yield from _lock(folder, stem + naming.LOCK, where, _holding(listing, stem))
        if naming.ACCESS_LOCK in suffixes:
            yield from _lock(folder, stem + naming.ACCESS_LOCK, where, _TIMES)


def _lock(folder: Folder, name: str, where: str, effect: str) -> Iterator[tuple[str, Problem]]:
    age = locks.age_ns(folder, name)
    if age is not None:
        detail = f"{where[3:]}: {locks.told(folder, name, age, effect)}"
        yield name, Problem(FindingKind.LOCKED, detail)


def _holding(listing: Listing, stem: str) -> str:
    """What a lock does where there is no entry."""
    if stem == naming.IR_STEM:
        return "the program is compiled at every run and never kept"
    above = [one for one in listing.stems if naming.order(one) > naming.order(stem)]
    unseen = f" (now {', '.join(above[:3])}{'...' if above[3:] else ''})" if above else ""
    return f"programs write their copy above {stem}{unseen}, never look there, and add one at every run"


def summed_bytes(root: Path) -> int:
    """The bytes of all entries as libsycl adds them up. Raises nothing."""
    return sum(group_bytes(root, group) for group in tree.groups(root))


def group_bytes(root: Path, group: Group) -> int:
    """The bytes of the entries in a folder; 0 for one that is gone."""
    found = (slot for _, _, slot in tree.slots_in(root, group))
    return sum(one.st_size for slot in found for one in (slot.binary, slot.source) if one)


def has_size(root: Path) -> bool:
    """Whether there is a file of the size. Raises nothing."""
    with suppress(OSError), Folder.at(root) as folder:
        return stat.S_ISREG(folder.lstat(naming.SIZE_FILE).st_mode)
    return False


def size_problem(root: Path, summed: int) -> Problem | None:
    """What is wrong with the file of the size; None where it is sound or missing."""
    try:
        with Folder.at(root) as folder:
            data = files.read(folder, naming.SIZE_FILE, _LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, FormatError) as error:
        return Problem(FindingKind.UNTRUSTED, f"{error}: {_WRITERS_DIE}")
    return _unreadable(data) or _far_off(data, summed)


def rewrite(root: Path, summed: int, mend: str = "repair the cache") -> str:
    """Write the true size where there is a file for it; a sentence of what was done, or of what kept it."""
    try:
        with Folder.at(root) as folder:
            folder.lstat(naming.SIZE_FILE)  # no lock is made where there is none
            with locks.held(folder, [naming.SIZE_LOCK]):
                if not _SIZE_LIKE.fullmatch(files.read(folder, naming.SIZE_FILE, _LIMIT_BYTES)):
                    return f"{naming.SIZE_FILE} {_NO_SIZE}"
                files.overwrite(folder, naming.SIZE_FILE, str(summed).encode(), whole=True)
    except FileNotFoundError:
        return ""
    except locks.BusyError:
        return (
            f"{naming.SIZE_FILE} was left alone, as {naming.SIZE_LOCK} exists; "
            f"{mend} if no program is running"
        )
    except FormatError as error:
        return f"{error}; move it elsewhere"
    except OSError as error:
        return f"{root / naming.SIZE_FILE} cannot be written ({error.strerror})"
    return f"{naming.SIZE_FILE} now says {format_size(summed)}"


def adjust(root: Path, change: int) -> None:
    """Add a change to a size that is sound and not locked; otherwise leave it to verify."""
    with suppress(OSError, FormatError, locks.BusyError), Folder.at(root) as folder:
        folder.lstat(naming.SIZE_FILE)
        with locks.held(folder, [naming.SIZE_LOCK]):
            data = files.read(folder, naming.SIZE_FILE, _LIMIT_BYTES)
            found = None if _unreadable(data) else _NUMBER.match(data)
            if found is not None:
                summed = max(0, int(found[2]) + change)
                files.overwrite(folder, naming.SIZE_FILE, str(summed).encode(), whole=True)


def eviction_files(root: Path) -> Iterator[tuple[Path, Problem]]:
    """Locks of eviction, and files that stop writers, each with what it does."""
    beside = [(root.parent, root.name + naming.EVICTION)] if root.name else []
    for place, name in (*beside, (root, naming.EVICTION)):
        with suppress(OSError), Folder.at(place) as folder:
            if locks.age_ns(folder, name) is not None:
                detail = f"while {name} exists every program that adds an entry hangs"
                yield place / name, Problem(FindingKind.MISPLACED, detail)
            if (age := locks.age_ns(folder, name + naming.LOCK)) is not None:
                told = locks.told(folder, name + naming.LOCK, age, "the cache is never evicted again")
                yield place / (name + naming.LOCK), Problem(FindingKind.LOCKED, told)


def clear_eviction(path: Path) -> None:
    """Remove a lock of eviction that nobody holds, or the file that stops writers; raises OSError."""
    with Folder.at(path.parent) as folder, suppress(FileNotFoundError):
        if path.name.endswith(naming.LOCK):
            locks.break_stale(folder, path.name)
        elif not locks.is_strange(folder, path.name):
            folder.unlink(path.name)


def size_lock(root: Path) -> Problem | None:
    """What a lock on the file of the size means; None where there is none."""
    effect = "a program with SYCL_CACHE_MAX_SIZE set spins for ever when it adds an entry"
    try:
        with Folder.at(root) as folder:
            age = locks.age_ns(folder, naming.SIZE_LOCK)
            if age is None:
                return None
            # A lock that nobody holds is what programs wait for until they are killed.
            kind = FindingKind.MISPLACED if locks.is_stale(age) else FindingKind.LOCKED
            return Problem(kind, locks.told(folder, naming.SIZE_LOCK, age, effect))
    except OSError:
        return None


def _unreadable(data: bytes) -> Problem | None:
    """What ``std::stoull`` makes of the first line; an empty file counts as 0."""
    line = data.partition(b"\n")[0]
    if not data:
        return None
    found = _NUMBER.match(line)
    if found is None or int(found[2]) >= 1 << 64:
        shown = line[:20].decode("ascii", "replace")
        mend = "" if _SIZE_LIKE.fullmatch(data) else f"; it {_NO_SIZE}"
        detail = f"{naming.SIZE_FILE} holds {shown!r}, which is no size: {_WRITERS_DIE}{mend}"
        return Problem(FindingKind.CORRUPT, detail)
    if found[1] == b"-":
        return Problem(
            FindingKind.CORRUPT, f"{naming.SIZE_FILE} is negative: programs evict at every entry they add"
        )
    return None


def _far_off(data: bytes, summed: int) -> Problem | None:
    found = _NUMBER.match(data)
    stored = int(found[2]) if found else 0
    if abs(stored - summed) <= max(SLACK_BYTES, summed // 4):
        return None
    effect = "evicts too early" if stored > summed else "lets the cache grow too large"
    return Problem(
        FindingKind.ORPHAN,
        f"{naming.SIZE_FILE} says {format_size(stored)} and the entries take {format_size(summed)}, "
        f"so libsycl {effect}",
    )


def limits(location: Location, bounds: Bounds) -> Iterator[str]:
    """What is wrong with the limits of a place, each with the line that mends it. Raises nothing."""
    root, limit = Path(location.root), location.limit_bytes
    if limit is not None and limit >= locations.LITTLE_BYTES and (stored := summed_bytes(root)) > limit:
        yield (
            f"the limit is too small: {format_size(stored)} are stored and {MAX_SIZE} allows "
            f"{format_size(limit)}, so libsycl evicts when the next entry is added; "
            f"export {MAX_SIZE}={2 * stored}"
        )
    if bounds != Bounds():
        yield from _keeping_out(root, bounds)


def _keeping_out(root: Path, bounds: Bounds) -> Iterator[str]:
    """A sentence where no stored image would be cached now."""
    count = 0
    for size_bytes in _image_sizes(root):
        if not bounds.refusal(size_bytes):
            return
        count += 1
    if count:
        names = [MIN_IMAGE] * bool(bounds.min_bytes) + [MAX_IMAGE] * (bounds.max_bytes != Bounds().max_bytes)
        yield (
            f"{' and '.join(names)} keep out the images of all {count} entries that are stored, so programs "
            f"compile them at every run; unset {' '.join(names)}"
        )


def _image_sizes(root: Path) -> Iterator[int]:
    for group in tree.groups(root):
        for folder, _, slot in tree.slots_in(root, group) if group.family is Family.PROGRAM else ():
            with suppress(OSError, FormatError):
                yield slots.source_of(folder, slot)[0].images.length
