"""Bounds the files beside the entries: histories, requests, memos, quarantine, files of killed processes.

Each of them may be lost at the cost of an explanation or some time. So the oldest are removed when all take
too much, and of which programs the histories went is kept. A file in ``tmp/`` or ``locks/`` may be in use and
is removed only as a leftover. A file whose name is not one of ours belongs to somebody else: it is neither
counted nor removed. Nothing here raises OSError. Must not know what the files say.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import layout
from gpucache.store.leftovers import is_removed_as_left
from gpucache.store.removed_records import RemovedRecords
from gpucache.store.root_folder import RootFolder
from gpucache.store.scan import allocated

_UNUSABLE = (OSError, CacheUnusableError)
_SHARE = 4
"""The files beside the entries may take a quarter of what the entries may."""
_IN_USE = (layout.TMP, layout.LOCKS)
_IN_A_FOLDER = "history.jsonl"


class Swept(NamedTuple):
    """What a sweep removed and what is left, as bytes of allocated blocks."""

    files: int
    freed_bytes: int
    left_bytes: int


class _Item(NamedTuple):
    place: tuple[str, ...]
    name: str
    allocated_bytes: int
    changed_ns: int


def beside_bytes(root: RootFolder) -> int:
    """The allocated blocks of all files beside the entries, in bytes."""
    return sum(item.allocated_bytes for item in _items(root))


def sweep(root: RootFolder, now_ns: int, max_size_bytes: int | None, why: str = "") -> Swept:
    """Remove leftovers, then the oldest other files until they take a quarter of the limit of the entries.

    ``why`` is kept of the histories among them: the rule that removed all entries before, if one did.
    """
    allowed_bytes = None if max_size_bytes is None else max_size_bytes // _SHARE
    gone = remove_left(root, now_ns)
    _move_out(root)
    rest = sorted(_items(root), key=lambda item: item.changed_ns)
    left = over = sum(item.allocated_bytes for item in rest)
    going: dict[tuple[str, ...], list[_Item]] = {}
    for item in rest:
        if allowed_bytes is None or over <= allowed_bytes:
            break
        if item.place not in _IN_USE:
            going.setdefault(item.place, []).append(item)
            over -= item.allocated_bytes
    # Kept before they go, so that whoever is stopped between the two leaves no false answer.
    histories = [item.name for item in going.get(layout.PROGRAMS, ())]
    RemovedRecords(root).note(histories, now_ns, why)
    removed = [item.allocated_bytes for place, some in going.items() for item in _removed(root, place, some)]
    return Swept(len(gone) + len(removed), sum(gone) + sum(removed), left - sum(removed))


def remove_left(root: RootFolder, now_ns: int) -> list[int]:
    """Remove what killed processes left in ``tmp/`` and ``locks/``; the allocated bytes of each such file."""
    gone = []
    for place in _IN_USE:
        with suppress(*_UNUSABLE), root.open(*place) as folder:
            for item in list(_files(folder, place)):
                with suppress(OSError):
                    if is_removed_as_left(folder, place, item.name, now_ns):
                        gone.append(item.allocated_bytes)
    return gone


def bound_histories(root: RootFolder, most: int) -> None:
    """If there are more histories than a limit, remove those with the oldest last event."""
    with suppress(*_UNUSABLE), root.open(*layout.PROGRAMS) as programs:
        if sum(1 for _ in programs.entries()) <= most:
            return
        found = sorted(_files(programs, layout.PROGRAMS), key=lambda item: item.changed_ns)
        going = [item.name for item in found[: max(0, len(found) - most * 9 // 10)]]
        RemovedRecords(root).note(going, time.time_ns(), "")
        for name in going:
            with suppress(OSError):
                programs.unlink(name)


def note_all(root: RootFolder, why: str) -> None:
    """Keep of all programs with a history that a rule removes their entries."""
    with suppress(*_UNUSABLE), root.open(*layout.PROGRAMS) as programs:
        names = [found.name for found in programs.entries()]
        histories = [name for name in names if layout.is_beside(layout.PROGRAMS, name)]
        RemovedRecords(root).note(histories, time.time_ns(), why)


def _items(root: RootFolder) -> Iterator[_Item]:
    for place in layout.BESIDE:
        with suppress(*_UNUSABLE), root.open(*place) as folder:
            yield from _files(folder, place)


def _files(folder: Folder, place: tuple[str, ...]) -> Iterator[_Item]:
    for found in folder.entries():
        if layout.is_beside(place, found.name):
            with suppress(OSError):
                status = folder.lstat(found.name)
                yield _Item(place, found.name, allocated(status), status.st_mtime_ns)


def _removed(root: RootFolder, place: tuple[str, ...], items: Iterable[_Item]) -> Iterator[_Item]:
    """Remove files of one folder; those that are gone."""
    with suppress(*_UNUSABLE), root.open(*place) as folder:
        for item in items:
            with suppress(OSError):
                folder.unlink(item.name)
                yield item


def _move_out(root: RootFolder) -> None:
    """Histories were in folders of their own once; a newer one of the same program stays."""
    with suppress(*_UNUSABLE), root.open(*layout.PROGRAMS) as programs:
        for name in [found.name for found in programs.entries() if found.is_dir(follow_symlinks=False)]:
            history = f"{name}{layout.HISTORY_SUFFIX}"
            with suppress(OSError), programs.folder(name) as folder:
                if layout.is_beside(layout.PROGRAMS, history):
                    try:
                        programs.lstat(history)
                        folder.unlink(_IN_A_FOLDER)
                    except FileNotFoundError:
                        folder.move(_IN_A_FOLDER, programs, history)
                    programs.rmdir(name)
