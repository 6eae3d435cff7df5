"""The stores a lookup goes through, nearest first: memory, the user's root, system roots.

Owns their order and why one is missing. Must not know concrete stores: assembly puts them in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpucache.store.interface import EntryStore, RefusedRoot, Store


@dataclass(frozen=True, slots=True)
class Layers:
    """Where a key is looked up, and where a new entry goes."""

    memory: Store | None = None
    user: EntryStore | None = None
    systems: tuple[EntryStore, ...] = ()
    unasked: tuple[EntryStore, ...] = ()
    """Roots of this user that the settings pass by: looked at only to explain a miss."""
    command: str = ""
    """What runs, for the journal."""
    disabled: bool = False
    read_only: bool = False
    require: bool = False
    learn: bool = False
    """Whether what a program leaves noted is built after its end."""
    trim: Callable[[], object] | None = None
    """Called after publishing where the cache has a bound; keeps it."""
    unusable: str = ""
    """Why there is no user's root, in one sentence; empty where there is one."""
    refused: tuple[RefusedRoot, ...] = ()
    """System roots that are named and cannot be read."""

    def on_disk(self) -> Iterator[EntryStore]:
        """The user's root, then system roots."""
        if self.user is not None:
            yield self.user
        yield from self.systems

    @property
    def not_asked(self) -> tuple[tuple[str, str], ...]:
        """Every root that is named and cannot be asked, each with the sentence that says why."""
        own = (("the user's own", self.unusable),) if self.unusable else ()
        return (*own, *((str(one.root), str(one)) for one in self.refused))

    @property
    def target(self) -> EntryStore | None:
        """The store a new entry is published to; None where nothing can be kept."""
        writable = self.user is not None and self.user.writable and not (self.read_only or self.disabled)
        return self.user if writable else None

    @property
    def keeps(self) -> bool:
        """Whether anything can be remembered."""
        return self.target is not None

    def recall(self, name: str) -> bytes | None:
        """What a root remembers under a name, the nearest first; None where none does."""
        if self.disabled:
            return None
        found = (store.recall(name) for store in self.on_disk())
        return next((data for data in found if data is not None), None)

    def remember(self, name: str, data: bytes) -> None:
        """Have the store that new entries go to remember something."""
        if self.target is not None:
            self.target.remember(name, data)
