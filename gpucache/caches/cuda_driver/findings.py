"""What is wrong with a driver cache, or worth knowing of it, from its tree summed up. Pure."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucache.caches.cuda_driver.settings import MAXSIZE, MOST_BYTES, MOVE, PATH
from gpucache.caches.cuda_driver.tree import Survey, Tally
from gpucache.outcomes import FindingKind
from gpucache.units import format_size

NEARLY_FULL = 0.9
Problem = tuple[FindingKind, str]
FOREIGN = (
    "this is no cache of the CUDA driver, as it has neither its index nor its layout, so nothing in it is "
    "looked at or removed; name the folder of one"
)
UNPROVEN = (
    "nothing there is named as only the driver names its files: an index and plain numbers are what others "
    "have as well, so nothing is removed; remove it yourself if it is the driver's"
)
OPAQUE = "the driver's format is not documented, so nothing in it can be checked but owners, modes and sizes"


def strangers(root: Path, found: Survey) -> str:
    """Why a cache among the files of others is not emptied, naming the first of them."""
    rest = found.strangers.count - 1
    others = "" if not rest else f" and {rest} more like it"
    return (
        f"{found.strangers.first!r}{others} in {root} is not named as the driver names its files, so nothing "
        f"there is removed; move that elsewhere, or set {PATH} to a folder that only the driver uses"
    )


def unread(root: Path) -> str:
    """That a folder which is there may not be read; empty where it may. Raises nothing."""
    there = os.path.isdir(root)  # noqa: PTH112 - Path.is_dir raises below a folder that may not be entered
    if not there or os.access(root, os.R_OK | os.X_OK):
        return ""
    return f"{root} may not be read by this user, so what it holds is not known; {MOVE}"


def unreadable(root: Path, problems: Sequence[str], error: OSError) -> Problem:
    """What is wrong with a root that cannot be read, in the words of its location where those tell it."""
    known = (one for one in problems if "may not be read" in one or "cannot be looked at" in one)
    detail = next(known, f"{root} cannot be read ({error.strerror}), so what it holds is not known; {MOVE}")
    return FindingKind.UNTRUSTED, detail


def untrusted(found: Survey) -> Iterator[Problem]:
    """Links, and what others own or may write to."""
    if found.links.count:
        detail = "no regular file, which the driver does not make; remove what it did not"
        yield FindingKind.UNTRUSTED, _told(found.links, detail)
    if found.distrusted.count:
        detail = "not to be believed, and the driver loads it; mend that, or empty the cache"
        yield FindingKind.UNTRUSTED, _told(found.distrusted, detail)


def worth_knowing(found: Survey, limit_bytes: int | None) -> Iterator[Problem]:
    """Of the cache as a whole: its limit, its index, and what writers left behind."""
    if found.foreign:
        yield FindingKind.UNSUPPORTED, FOREIGN
        return
    if limit_bytes is not None:
        yield from _oversize(found, limit_bytes)
        yield from _full(found, limit_bytes)
    yield from _halves(found)
    if found.temporary.count:
        yield FindingKind.LEFTOVER, _told(found.temporary, "temporary and over an hour old")
    if found.empty.count:
        detail = "empty, as a program leaves them that is stopped while it writes a binary"
        yield FindingKind.LEFTOVER, _told(found.empty, detail)
    if found.unread.count:
        yield FindingKind.UNSUPPORTED, _told(found.unread, "a folder that was not looked into")


def _oversize(found: Survey, limit_bytes: int) -> Iterator[Problem]:
    if found.oversize.count:
        detail = (
            f"larger than the whole limit of {format_size(limit_bytes)}; the driver does not cache what is, "
            f"so that a program compiles it at every start: {_remedy(limit_bytes)}"
        )
        yield FindingKind.STALE, _told(found.oversize, detail)


def _full(found: Survey, limit_bytes: int) -> Iterator[Problem]:
    if not found.binaries or found.size_bytes < NEARLY_FULL * limit_bytes:
        return
    told = f"{format_size(found.size_bytes)} of {format_size(limit_bytes)} are used"
    if found.recent * 2 >= found.binaries:
        told += (
            f" and {found.recent} of {found.binaries} binaries are less than an hour old: programs evict "
            "each other's binaries at every start"
        )
    else:
        told += ": old binaries are evicted for new ones, and their programs compile anew"
    yield FindingKind.STALE, f"{told}; {_remedy(limit_bytes)}"


def _halves(found: Survey) -> Iterator[Problem]:
    if found.binaries and not found.has_index:
        yield (
            FindingKind.ORPHAN,
            "its file 'index' is missing, so programs may not find the binaries in it; "
            "'gpucache evict --cache cuda --all' empties it",
        )
    elif found.has_index and not found.binaries:
        yield FindingKind.ORPHAN, "it holds an index and no binaries, so programs compile anew"


def _remedy(limit_bytes: int) -> str:
    if limit_bytes < MOST_BYTES:
        return f"raise {MAXSIZE}, at most to {MOST_BYTES}"
    return f"give programs caches of their own by {PATH}"


def _told(tally: Tally, detail: str) -> str:
    others = "" if tally.count == 1 else f" and {tally.count - 1} more"
    return f"{tally.first}{others}: {detail}"
