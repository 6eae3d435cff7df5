"""The walk over a cache's folders, what lies in one folder of entries, and what was seen of it last.

Owns which folders are entered: those that libsycl names, never through a link. Memory does not grow with the
number of entries. A program may leave thousands of copies in one folder, and each is asked about by itself:
what holds for all of them is found out once. Must not know what files hold.
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.caches import files, places, tally
from gpucache.caches.sycl import locations, naming, signs, slots
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.slots import Identities, Slot
from gpucache.folders import Folder


@dataclass(frozen=True, slots=True)
class Stray:
    """Something in a cache that belongs to no entry, by its path below the root."""

    parts: tuple[str, ...]
    kind: FindingKind
    detail: str
    error: OSError | None = None
    """Why the folder that it is could not be read."""


@dataclass(frozen=True)
class Listing:
    """The names in a folder of entries: the suffixes there are for each stem, and foreign names.

    Not to be changed once it is asked: what it tells of all stems is worked out once.
    """

    files: dict[str, set[str]] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)

    @cached_property
    def stems(self) -> list[str]:
        """The entries and halves of entries, in the order in which programs look at them."""
        return sorted((stem for stem in self.files if self.present(stem)), key=naming.order)

    def present(self, stem: str) -> bool:
        """Whether programs see an entry here: either of its files is enough."""
        return not self.files.get(stem, set()).isdisjoint((naming.BINARY, naming.SOURCE))

    @cached_property
    def hole(self) -> int:
        """The first number that programs do not see, where they stop looking."""
        number = 0
        while self.present(str(number)):
            number += 1
        return number


def walk(root: Path) -> Iterator[Group | Stray]:
    """Every folder of entries and everything that does not belong there, in no order.

    Nothing for a root that does not exist, and one stray for a root that cannot be read. Raises nothing.
    """
    try:
        with Folder.at(root) as top:
            yield from _below(top, ())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        yield Stray((), FindingKind.UNTRUSTED, f"it cannot be read ({getattr(error, 'strerror', error)})")


def groups(root: Path) -> Iterator[Group]:
    """The folders of entries alone. Raises nothing."""
    return (item for item in walk(root) if isinstance(item, Group))


def slots_in(root: Path, group: Group) -> Iterator[tuple[Folder, Listing, Slot]]:
    """The entries of a folder, in the order in which programs look at them, with the open folder.

    Nothing for a folder that is gone, or that does not open, which is told elsewhere. Raises nothing.
    """
    try:
        with open_group(root, group) as folder:
            found = listing(folder)
            for stem in found.stems:
                yield folder, found, slots.look(folder, group, stem)
    except OSError:
        return


def listing(folder: Folder) -> Listing:
    """What lies in a folder of entries; raises OSError."""
    found = Listing()
    for item in folder.entries():
        split = naming.split_file(item.name)
        if split is None:
            found.foreign.append(item.name)
        else:
            found.files.setdefault(split[0], set()).add(split[1])
    return found


def open_group(root: Path, group: Group) -> Folder:
    """The folder of a group; raises OSError."""
    return files.open_folder(root, *group.parts)


def open_part(root: Path, parts: tuple[str, ...]) -> Folder:
    """A folder below the root; raises OSError."""
    return files.open_folder(root, *parts)


def remove_empty(root: Path, parts: tuple[str, ...]) -> int:
    """Remove a folder and those above it, the root apart, while they are empty; how many went."""
    gone = 0
    for depth in range(len(parts), 0, -1):
        try:
            with open_part(root, parts[: depth - 1]) as above:
                above.rmdir(parts[depth - 1])
        except OSError:
            break
        gone += 1
    return gone


def _below(folder: Folder, parts: tuple[str, ...]) -> Iterator[Group | Stray]:
    folder.lstat(os.curdir)  # names alone, without the right to look at what they lead to, say nothing
    doubt = places.distrust(folder.status(), move="move the cache with SYCL_CACHE_DIR")
    if doubt:
        yield Stray(parts, FindingKind.UNTRUSTED, doubt)
    group = naming.group_of(parts)
    if group is not None:
        yield group
        return
    empty = True
    for item in folder.entries():
        empty = False
        if not _is_strange((*parts, item.name)):
            yield from _item(folder, item, parts)
    names = (item.name for item in folder.entries() if _is_strange((*parts, item.name)))
    if told := tally.listed(names):
        yield Stray(parts, FindingKind.LEFTOVER, _strange(told, top=not parts))
    if empty and parts:
        yield Stray(parts, FindingKind.LEFTOVER, "it is an empty folder, as eviction leaves them")


def _is_strange(parts: tuple[str, ...]) -> bool:
    """Whether libsycl makes no such name."""
    if len(parts) == 1 and parts[0] in signs.ROOT_FILES:
        return False
    return not naming.leads_on(parts) and naming.group_of(parts) is None


def _strange(told: str, *, top: bool) -> str:
    """One sentence for all the foreign names in a folder, however many."""
    own = f"; give the cache a folder of its own: {locations.MOVE}" if top else ""
    return f"it holds {told} as well, which libsycl does not make and which are left alone{own}"


def _item(folder: Folder, item: os.DirEntry[str], parts: tuple[str, ...]) -> Iterator[Group | Stray]:
    own = (*parts, item.name)
    if not parts and item.name in signs.ROOT_FILES:
        return
    try:
        mode = folder.lstat(item.name).st_mode
        if stat.S_ISLNK(mode):
            yield Stray(own, FindingKind.UNTRUSTED, "it is a link, which leads programs out of the cache")
        elif not stat.S_ISDIR(mode):
            yield Stray(
                own, FindingKind.LEFTOVER, "it has the name of a folder and is none: nothing is kept there"
            )
        else:
            with folder.folder(item.name) as inner:
                yield from _below(inner, own)
    except FileNotFoundError:
        return  # removed meanwhile
    except OSError as error:
        detail = f"it cannot be read ({error.strerror}); chmod u+rx it"
        yield Stray(own, FindingKind.UNTRUSTED, detail, error)


_STEADY_NS = 2_000_000_000
"""A folder changed less long ago may change again without another time of change."""


class View:
    """The names in a folder, and where entries lie that were moved."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._places: dict[Identities, str] | None = None

    def find(self, folder: Folder, seen: Slot) -> Slot | None:
        """An entry that was seen before, also where it was moved; None once it is gone."""
        group, identities = seen.group, seen.identities
        slot = slots.look(folder, group, seen.stem)
        if slot.identities == identities:
            return slot
        if self._places is None:
            found = reversed(self.listing.stems)
            self._places = {slots.look(folder, group, one).identities: one for one in found}
        place = self._places.get(identities)
        if place is None:
            return None
        slot = slots.look(folder, group, place)
        return slot if slot.identities == identities else None


class Views:
    """The view of the folder that was asked about last."""

    def __init__(self) -> None:
        self._seen: tuple[int, int, int] | None = None
        self._view: View | None = None

    def of(self, folder: Folder) -> View:
        """The view of an open folder, listed anew where it changed; raises OSError."""
        status = folder.status()
        seen = status.st_dev, status.st_ino, status.st_mtime_ns
        if self._view is None or seen != self._seen:
            steady = time.time_ns() - status.st_mtime_ns > _STEADY_NS
            self._view = View(listing(folder))
            self._seen = seen if steady else None
        return self._view
