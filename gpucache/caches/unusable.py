"""A cache that is there and cannot be opened, so that one of many does not hide the others.

Owns nothing but the reason. Everything that would need the cache is answered with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpucache.caches.interface import Wanted
from gpucache.errors import CacheUnusableError
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Finding, FindingKind, Kept, Location, Reach


class Unusable:
    """See ``gpucache.caches.interface.Cache``."""

    def __init__(self, location: Location, reason: str) -> None:
        self._location = location
        self._reason = reason

    @property
    def name(self) -> str:
        """The name of its system."""
        return self._location.cache

    def location(self) -> Location:
        """Where it lies, with why it cannot be opened."""
        problems = self._location.problems
        return (
            self._location
            if self._reason in problems
            else replace(self._location, problems=(*problems, self._reason))
        )

    def scan(self) -> Iterator[CacheEntry]:
        """Nothing that can be seen."""
        return iter(())

    def find(self, prefix: str) -> list[CacheEntry]:  # noqa: ARG002 - the protocol's
        """Nothing that can be seen."""
        return []

    def report(self, entry: CacheEntry) -> EntryReport:  # noqa: ARG002 - the protocol's
        """Refused."""
        raise CacheUnusableError(self._reason)

    def extract(self, entry: CacheEntry) -> bytes:  # noqa: ARG002 - the protocol's
        """Refused."""
        raise CacheUnusableError(self._reason)

    def check(self, entry: CacheEntry) -> Checked:  # noqa: ARG002 - the protocol's
        """Refused."""
        raise CacheUnusableError(self._reason)

    def leftovers(self) -> Iterator[Checked]:
        """That it cannot be opened, which is nothing that verify may pass over."""
        finding = Finding(self.name, self._location.root, FindingKind.UNTRUSTED, self._reason)
        yield Checked(self._location.root, (finding,), counts=False)

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - the protocol's
        """Refused."""
        return Kept(self._reason)

    def settle(self) -> Sequence[str]:
        """Nothing."""
        return ()

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:  # noqa: ARG002 - the protocol's
        """Nothing can be done."""
        return checked

    def explain(self, wanted: Wanted) -> Iterator[Reach]:  # noqa: ARG002 - the protocol's
        """Refused."""
        raise CacheUnusableError(self._reason)
