"""What was seen of a folder of entries, kept while the folder stays the same.

A program may leave thousands of copies in one folder, and each is asked about by itself: what holds for
all of them is found out once. Must not judge.
"""

import time

from gpucache.caches.files import Identity
from gpucache.caches.sycl import slots, tree
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.tree import Listing
from gpucache.folders import Folder

_SETTLED_NS = 2_000_000_000
"""A folder changed less long ago may change again without another time of change."""
Identities = tuple[Identity | None, Identity | None]


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
            settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
            self._view = View(tree.listing(folder))
            self._seen = seen if settled else None
        return self._view
