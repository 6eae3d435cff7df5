"""The opened caches that a verb works on, and the entries in them that words name."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gpucache.answers.entries import CacheEntry, EntryReport
from gpucache.caches.interface import Cache, OwnRoot
from gpucache.errors import CacheUnusableError, UsageError

if TYPE_CHECKING:
    from gpucache.settings import Settings

Selected = Sequence[tuple[Cache, Iterable[CacheEntry]]]


class Opened(NamedTuple):
    """The caches that were named, with the settings that led to them."""

    settings: "Settings"
    caches: tuple[Cache, ...]

    @property
    def roots(self) -> list[OwnRoot]:
        return [one for one in self.caches if isinstance(one, OwnRoot)]

    @property
    def own(self) -> OwnRoot | None:
        """The root that has the records: the user's own, or else the first system root."""
        return next(iter(self.roots), None)

    @property
    def unread(self) -> tuple[str, ...]:
        """Why not all of the caches could be looked at or worked on so far, a sentence each."""
        return tuple(dict.fromkeys(sentence for cache in self.caches for sentence in cache.unread()))

    def require_own(self, option: str) -> OwnRoot:
        """Our own cache; raises UsageError if others were named, for which the option does not exist."""
        users = [one for one in self.roots if not one.location().role]
        if self.own is None or len(users) > 1 or len(self.roots) < len(self.caches):
            raise UsageError(f"{option} is for gpucache's own cache; leave --cache out, or name its root")
        return self.own

    def select(
        self, words: Sequence[str] = (), targets: Sequence[str] = (), *, heads: bool = True
    ) -> Selected:
        """The function ``select``; raises CacheUnusableError if a word may be in a part that is not read.

        Without ``heads``, and without words, the entries have no more than is needed to pack them.
        """
        if not (heads or words or targets):
            return [(cache, cache.entries(heads=False)) for cache in self.caches]
        with self.found_or_unread():
            return select(self.caches, words, targets)

    def report(self, prefix: str) -> EntryReport:
        """The one entry whose key begins with some digits; raises UsageError unless there is one."""
        found = [(cache, entry) for cache in self.caches for entry in cache.find(prefix)]
        if len(found) != 1:
            raise UsageError(
                f"{len(found)} entries have a key that begins with {prefix}; give more digits of one"
            )
        [(cache, entry)] = found
        return cache.report(entry)

    @contextmanager
    def found_or_unread(self) -> Iterator[None]:
        """If a name is not found, blame directories of entries that could not be listed, if there are any."""
        try:
            yield
        except UsageError:
            if not self.unread:
                raise
            why = f"{'; '.join(self.unread)}; it may have the entries you named"
            raise CacheUnusableError(why) from None


def select(caches: Sequence[Cache], words: Sequence[str] = (), targets: Sequence[str] = ()) -> Selected:
    """The entries of each cache that some words name, for any of some targets; all entries without words.

    A word is a program, a target or the first digits of a key. Without words the entries are read one by one,
    on demand. Raises UsageError for a word that names nothing in any of the caches.
    """

    def wanted(entry: CacheEntry) -> bool:
        return not targets or any(matches_target(entry, target) for target in targets)

    if not words:
        return [(cache, filter(wanted, cache.scan())) for cache in caches]
    found = {word: [list(filter(wanted, _named(cache, word))) for cache in caches] for word in words}
    for word, by_cache in found.items():
        if not any(by_cache):
            if os.path.isabs(word) or os.path.isdir(word):  # noqa: PTH112, PTH117 - any text is no error
                raise UsageError(f"{no_store(word)}, and no program has this name; name a cache by --cache")
            raise UsageError(
                f"no entry is of a program, target or key {word!r}; run 'gpucache inspect --list' to see the "
                "entries"
            )
    return [(cache, list(chain(*own))) for cache, *own in zip(caches, *found.values(), strict=True)]


def no_store(place: str) -> str:
    """A clause about a place that is no store."""
    return f"{place} {'is not a store' if os.path.lexists(place) else 'does not exist'}"


def _named(cache: Cache, word: str) -> list[CacheEntry]:
    found = cache.find(word) if is_key_prefix(word) else []
    return found or [
        entry for entry in cache.scan() if matches_program(entry, word) or matches_target(entry, word)
    ]


def is_key_prefix(word: str) -> bool:
    """Whether a word can be the beginning of a key; in some systems a number follows its digits."""
    return re.fullmatch(r"[0-9a-f]{4,}(-\d+)?", word) is not None


def matches_program(entry: CacheEntry, program: str) -> bool:
    """Whether a word names an entry's program: its name, the last part of its name, or one of its kernels."""
    if entry.program == program or entry.program.endswith(f"/{program}"):
        return True
    kernels = (value for label, value in entry.fields if label in ("kernel", "kernels"))
    return entry.program.startswith(f"{program} and ") or any(
        program in value.replace(",", " ").split() for value in kernels
    )


def matches_target(entry: CacheEntry, target: str) -> bool:
    """Whether an entry is for a target, for one below it, or for a version of the platform.

    If two platforms share a name, their targets carry versions, as in ``opencl:pocl-3.1/cpu``. The plain
    name, with which ``warm`` finds the one that can be compiled for, means all of them.
    """
    if not entry.target.startswith(target):
        return False
    rest = entry.target[len(target) :]
    return re.match(r"\Z|[/:]", rest) is not None or re.match(r"-\d[^/]*/", rest) is not None
