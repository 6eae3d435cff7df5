"""The engine of every third-party cache, driven by the format of its system.

Owns the rules common to all of them: which errors are a finding, a note or a refusal, which entries are kept
because they changed, are not the owner's or are locked, the marks of a repair, and key lookups. The format
describes one program's cache (``gpucache.caches.format``). Must not know any system.
"""

import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked, Finding
from gpucache.answers.why import Reach, Served
from gpucache.caches import places
from gpucache.caches.files import Files
from gpucache.caches.format import Format, HeldError, UnjudgedError
from gpucache.caches.interface import Cache, Wanted
from gpucache.caches.portable import (
    MOST_BYTES,
    MOST_FILES,
    ImmovableError,
    PortableEntry,
    PortableFile,
    Restored,
    Start,
    name_here,
    portable_name,
    restored_ahead,
)
from gpucache.caches.stamps import Seen
from gpucache.errors import FormatError, GpucacheError, UsageError
from gpucache.host import os_errors
from gpucache.model import KeyField

R = TypeVar("R")
_LOOKED_AT = 1000
"""The number of entries that are read to determine the owner of a cache."""
_KEY = re.compile(r"[0-9a-f]{4,128}")
_STRANGE = (FindingKind.MISLABELLED, FindingKind.ORPHAN)
"""Kinds of damage that may mean that a file is not the owner's."""
_REMOVED = "it was removed while it was being checked"
_CHANGED = "it changed while it was being checked; check again"


class ForeignCache(Cache):
    """One third-party cache, from its format."""

    def __init__(self, made: Format) -> None:
        self._format = made
        self.name = made.name
        self.together = made.together
        self.moving = made.moving
        self.strips = type(made).strip is not Format.strip
        self._root = made.root
        self._shows_uses = places.shows_uses(made.root)
        self._shown: bool | None = None
        self._failed: dict[str, None] = {}
        self._bare: set[str] = set()
        """The keys of entries that were given without a look at their files."""

    def location(self) -> Location:
        return self._format.location

    def scan(self, *, beside: bool = False) -> Iterator[CacheEntry]:
        self._format.keeps_beside = beside
        return self._scan("")

    def entries(self, *, heads: bool = True) -> Iterable[CacheEntry]:
        return list(self._scan("", heads=heads))

    def find(self, prefix: str) -> list[CacheEntry]:
        return list(self._scan(prefix))

    def unread(self) -> Sequence[str]:
        return (*self._failed, *self._format.closed_folders.values())

    def report(self, entry: CacheEntry) -> EntryReport:
        item = self._item(entry)
        try:
            pairs = (("key", entry.key), *entry.fields, *self._format.inputs(item, entry))
            described, log = tuple(self._format.content(item, entry)), self._format.log(item)
        except OSError as error:
            raise _unread(entry, error) from error
        return EntryReport(entry, tuple(KeyField(*pair) for pair in pairs), described, entry.compile_ns, log)

    def extract(self, entry: CacheEntry) -> bytes:
        item = self._item(entry)
        try:
            if wrong := self._format.bars(item) or self._format.unsound(item):
                what = f"the entry {entry.key[:12]} of {entry.path}"
                raise FormatError(f"{what} is {wrong.kind}: {wrong.detail}; run 'gpucache verify'")
            return self._format.payload(item)
        except OSError as error:
            raise _unread(entry, error) from error

    def check(self, entry: CacheEntry) -> Checked:
        item = self._item(entry)
        try:
            found = list(problems(self._format, item))
            barred = self._format.bars(item) is not None
            notes = () if barred else tuple(self._format.notes(item))
            checksum = not barred and self._format.has_checksum(item)
            if found and not self._format.unchanged(item):
                return Checked(entry.key, notes=(_CHANGED,), counts=False)
        except FileNotFoundError:
            return Checked(entry.key, notes=(_REMOVED,), counts=False)
        except UnjudgedError as unjudged:
            return Checked(entry.key, notes=(str(unjudged),), counts=False)
        except PermissionError as error:
            found, notes, checksum = [_unreadable(error)], (), False
        except OSError as error:
            note = f"{entry.key[:12]} cannot be read ({error.strerror})"
            return Checked(entry.key, notes=(note,), counts=False)
        except Exception as error:
            return Checked(entry.key, unchecked=self._failure(error))
        told = tuple(Finding.about(entry, one) for one in found)
        made = self._format
        why = f"{made.owner} stores nothing to check it against"
        unseen = f"verify cannot notice {made.unseen}: {why}" if made.unseen else ""
        return Checked(entry.key, told, notes, checksum=checksum, unseen=unseen)

    def leftovers(self) -> Iterator[Checked]:
        with self._apart():
            made = self._format
            if why := made.closed():
                self._failed[why] = None
                yield made.told(self._root, Problem(FindingKind.UNTRUSTED, why))
            elif made.is_foreign():
                detail = f"{self._root} has the layout of no known version of {made.owner}"
                foreign = Problem(
                    FindingKind.UNSUPPORTED,
                    f"{detail}, so nothing in it is looked at",
                    "name the directory of a cache",
                )
                yield made.told(self._root, foreign)
            else:
                yield from made.beside()
                yield from made.whole()

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:
        item = self._item(entry)
        if entry.stays:
            return Kept(entry.stays)
        made = self._format
        try:
            with made.lock(item):
                return made.remove(item)
        except HeldError as held:
            return Kept(str(held))
        except OSError as error:
            return Kept.by(error, self._root)
        except Exception as error:
            return Kept(self._failure(error))

    def remove_together(self, entries: Iterable[CacheEntry], why: str) -> Sequence[Kept | None]:
        every = list(entries)
        going = [self._item(one) for one in every if not one.stays]
        if self.together > 1 and going:
            with suppress(Exception):  # one may fail, or all: then each returns its own reason
                done = iter(self._format.remove_together(going))
                return [Kept(entry.stays) if entry.stays else next(done) for entry in every]
        return [self.remove(one, why) for one in every]

    def strip(self, entry: CacheEntry) -> Kept | None:
        item, made = self._item(entry), self._format
        try:
            if wrong := entry.damage or next(made.trust(item), None):
                return Kept(f"it is {wrong.kind}: {wrong.detail}; run 'gpucache verify --repair'")
            if not item.owned:
                return Kept("it belongs to another user; run gpucache as that user")
            return None if made.unchanged(item) and made.strip(item) else Kept()
        except OSError as error:
            return Kept.by(error, self._root)
        except FormatError as error:
            return Kept(str(error))

    def finish_removals(self) -> Sequence[str]:
        try:
            return self._format.finish_removals()
        except Exception as error:
            self._failure(error)
            return ()

    def pack(self, entry: CacheEntry) -> PortableEntry:
        item, made = self._item(entry)._replace(held={}), self._format
        if made.moving.why_not:
            raise FormatError(made.moving.why_not)
        if item.key in self._bare:
            entry = self._looked(item) or entry
        try:
            if wrong := judge(made, item):
                raise FormatError(f"it is {wrong.kind}: {wrong.detail}; run 'gpucache verify --repair'")
            files = _movable(made, item)
            facts = tuple((str(label), value) for label, value in made.facts(item, entry))
            if not made.unchanged(item):
                raise FormatError(_CHANGED)
        except FileNotFoundError:
            raise FormatError(_REMOVED) from None
        except OSError as error:
            raise _unread(entry, error) from error
        return PortableEntry(
            made.name,
            item.key,
            tuple(one._replace(name=portable_name(one.name)) for one in files),
            facts,
            entry.program,
            entry.target,
            entry.artifact_kind,
            entry.compile_ns,
            entry.created_ns,
        )

    def seen(self, entry: CacheEntry) -> Seen:
        return _seen(self._item(entry))

    def facts_here(self) -> Mapping[str, frozenset[str]]:
        return self._format.facts_here()

    def having(self, keys: Container[str]) -> Callable[[str, Collection[str]], bool]:
        made, there = self._format, dict[str, list[Files]]()
        for item in self._items_of(keys):
            there.setdefault(item.key, []).append(item)

        def has(key: str, names: Collection[str]) -> bool:
            try:
                return any(self._is_sound(item) and made.holds(item, names) for item in there.get(key, ()))
            except (OSError, FormatError):
                return False

        return has

    def seen_now(self, keys: Container[str]) -> Iterator[tuple[str, Seen]]:
        return ((item.key, _seen(item)) for item in self._items_of(keys))

    def _items_of(self, keys: Container[str]) -> Iterator[Files]:
        with suppress(OSError, FormatError):
            yield from (item for item in self._format.items("") if item.key in keys)

    def _is_sound(self, item: Files) -> bool:
        """Whether an entry is sound; raises FormatError, OSError."""
        seen = _seen(item)
        if self.sound.digest(item.key, seen) is not None:
            return True
        if found := judge(self._format, item) is None:
            self.sound.note(item.key, seen)
        return found

    def restore(self, entries: Iterable[PortableEntry]) -> Iterator[Restored]:
        made, waiting = self._format, iter(entries)
        try:
            with made.restoring(judge) as start:
                yield from restored_ahead(partial(self._begun, start), waiting)
        except (FormatError, OSError) as error:  # the place itself
            failed = isinstance(error, OSError)
            why = self._unwritten(error) if isinstance(error, OSError) else str(error)
            yield from (Restored(done=False, reason=why, failed=failed) for _ in waiting)

    def _begun(self, start: Start, entry: PortableEntry) -> Callable[[], Restored]:
        begun = self._tried(lambda: self._start(start, entry))
        return (lambda: begun) if isinstance(begun, Restored) else partial(self._tried, begun)

    def _start(self, start: Start, entry: PortableEntry) -> Callable[[], Restored]:
        if entry.system != self.name:
            raise FormatError(f"it is an entry of {entry.system}")
        files = tuple(one._replace(name=name_here(one.name)) for one in entry.files)
        return start(entry._replace(files=files))

    def _tried(self, step: Callable[[], R]) -> R | Restored:
        try:
            return step()
        except (UnjudgedError, HeldError) as error:
            return Restored(done=False, reason=str(error))
        except FormatError as error:
            return Restored(done=False, reason=str(error), damaged=True)
        except OSError as error:
            return Restored(done=False, reason=self._unwritten(error), failed=True)
        except Exception as error:
            return Restored(done=False, reason=self._failure(error), failed=True)

    def _unwritten(self, error: OSError) -> str:
        return f"{self._root} cannot be written ({os_errors.reason(error)}); {os_errors.remedy(error)}"

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        try:
            return self._repaired(checked, entry)
        except Exception as error:
            return checked.unfixed(self._failure(error), frozenset(FindingKind))

    def _repaired(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        made = self._format
        if entry is None:
            return checked if made.is_foreign() else made.clear(checked)
        item = self._item(entry)
        if made.leaves_to_owner and not item.owned:
            return checked
        found = [one.problem for one in checked.findings]
        if entry.stays and any(one.paths is None and one.kind in made.fixes for one in found):
            return checked.unfixed(entry.stays, made.fixes)
        try:
            gone = made.fix(item, found)
        except FileNotFoundError:  # it is gone, and with it all that was wrong
            return checked.fixed()
        except (HeldError, OSError) as error:
            why = Kept.by(error, self._root).reason if isinstance(error, OSError) else str(error)
            return checked.unfixed(why, frozenset(FindingKind))
        marked = (one._replace(repaired=one.repaired or one.problem in gone) for one in checked.findings)
        return checked._replace(findings=tuple(marked))

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        made = self._format
        for name in wanted:
            if name not in made.wanted:
                rest = f"; ask for {', '.join(made.wanted)}" if made.wanted else _NO_FIELDS
                raise UsageError(f"{made.owner}'s cache has no field {name!r}{rest}")
        if not (made.location.enabled or made.place.opt_in):
            why = next(iter(made.location.problems), f"{made.owner} is told not to use it")
            yield Reach(self.name, "a program", Verdict.NOT_CONSULTED, why)
        elif (answers := made.answer(wanted)) is not None:
            yield from answers
        elif keys := wanted.get("key", ()):
            yield from map(self._answer, keys)
        else:
            tracing = " ".join(map("=".join, made.tracing.items()))
            logs = f"; {tracing} makes its programs log hits and misses" if tracing else ""
            detail = made.opaque or f"its entries do not record the inputs of their keys{logs}"
            yield Reach(self.name, "a program", Verdict.OPAQUE_KEY, detail)

    def _scan(self, prefix: str, *, heads: bool = True) -> Iterator[CacheEntry]:
        with self._apart():
            if why := self._format.closed():
                self._failed[why] = None
                return
            if self._format.is_foreign():
                return
            for item in self._format.items(prefix):
                if not heads and self.sound.digest(item.key, _seen(item)):
                    self._bare.add(item.key)
                    yield self._format.entry(item)
                elif (entry := self._looked(item)) is not None:
                    own = entry.stays or entry.shows is not False or self._shows_owner()
                    yield entry if own else entry._replace(stays=self._unproven())

    def _looked(self, item: Files) -> CacheEntry | None:
        made = self._format
        try:
            if (damage := made.bars(item)) is None:
                if (entry := made.look(item)) is None:
                    return None
                # No local device determines the reader, but the program that made it.
                told = () if entry.toolchain_identity else entry.toolchain
                producer = " ".join(part for pair in told if all(pair) for part in pair)
                if entry.damage and entry.damage.kind in _STRANGE:
                    entry = entry._replace(shows=False)
                return entry._replace(producer=producer, uses_show=self._shows_uses)
        except FileNotFoundError:
            return None
        except FormatError as error:
            damage = Problem(FindingKind.CORRUPT, str(error))
        except OSError as error:
            damage = _unreadable(error)
        return made.entry(item)._replace(damage=damage, shows=None)  # the name alone shows nothing

    def _shows_owner(self) -> bool:
        """Whether its place or an entry identifies the owner; other programs use such file names, too."""
        if self._shown is None:
            ways = self._format.place.ways
            default = any(way.below and self._root.match(way.below) for way in ways)
            items = islice(self._format.items(""), _LOOKED_AT)
            self._shown = default or any(
                one.size_bytes and (found := self._looked(one)) and found.shows for one in items
            )
        return self._shown

    def _unproven(self) -> str:
        made = self._format
        return (
            f"neither its content nor a file next to it shows that it is {made.owner}'s, so it stays; "
            "remove it yourself if it is"
        )

    def _answer(self, value: bytes) -> Reach:
        """Whether the owner would find an entry under a key, or under the beginning of a key."""
        made = self._format
        key = value.decode("ascii", "replace").strip().lower()
        if not _KEY.fullmatch(key):
            raise UsageError("a key is 4 hex digits or more; give key=HEX")
        words = f"key {key[:12]}"
        found = self.find(key)
        if not found and (digits := made.filed_as(key)):
            found = self.find(digits)
        if not found:
            return Reach(self.name, words, Verdict.NEVER_BUILT, made.absent)
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} entries have a key that begins with {key}; give more digits of one"
            )
        (entry,) = found
        halves = {FindingKind.LEFTOVER} if made.serves_orphans else {FindingKind.LEFTOVER, FindingKind.ORPHAN}
        findings = self.check(entry).findings
        wrong = next((one for one in findings if one.kind.wrong or one.kind in halves), None)
        if wrong is not None:
            detail = f"{wrong.kind}: {wrong.detail}"
            return Reach(self.name, words, Verdict.CORRUPT, detail, nearest=entry.key)
        served = made.served or f"{made.owner} would serve it"
        return Reach(self.name, words, Served.HIT, served, nearest=entry.key)

    def _item(self, entry: CacheEntry) -> Files:
        found = entry.handle
        if not isinstance(found, Files):
            raise TypeError("an entry of another cache")
        return found

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """A context in which a failure is reported by ``unread``, unless a file is missing."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            return
        except UsageError:
            raise
        except Exception as error:
            self._failure(error)

    def _failure(self, error: Exception) -> str:
        """Record why something failed; returns the reason, a sentence."""
        if isinstance(error, GpucacheError):
            told = str(error)
        elif isinstance(error, OSError):
            told = f"{self._root} cannot be read ({error.strerror}); fix its permissions or name another"
        elif os.environ.get("GPUCACHE_LOG", "").lower() == "debug":
            raise error
        else:
            what = f"{self.name} in {self._root} failed: unexpected {type(error).__name__}: {error}"
            told = f"{what}; run it again with GPUCACHE_LOG=debug and report what it prints"
        self._failed[told] = None
        return told


def problems(made: Format, item: Files) -> Iterator[Problem]:
    """Everything that is wrong with an entry, or worth knowing; raises UnjudgedError, OSError."""
    barred = made.bars(item)
    if barred is not None:
        yield barred
        return
    yield from made.trust(item)
    try:
        yield from made.check(item)
    except UnjudgedError:
        raise
    except FormatError as error:
        yield Problem(FindingKind.UNTRUSTED, f"{error}, though {made.owner} follows it")


def _movable(made: Format, item: Files) -> tuple[PortableFile, ...]:
    """The files of a sound entry in their portable form; raises ImmovableError, OSError."""
    try:
        files = tuple(made.files_to_move(item))
    except FormatError as error:
        raise ImmovableError(str(error)) from None
    if not files:
        raise ImmovableError("it is empty")
    if sum(len(one.data) for one in files) > MOST_BYTES or len(files) > MOST_FILES:
        raise ImmovableError("it is larger than 4 GiB or has more than 20,000 files; keep it where it is")
    return files


def _seen(item: Files) -> Seen:
    return item.seen if item.complete and item.detail is None else {}


def judge(made: Format, item: Files) -> Problem | None:
    """The first problem that keeps an entry from leaving or entering a cache; raises FormatError, OSError."""
    bad = {FindingKind.ORPHAN, FindingKind.LEFTOVER, FindingKind.UNSUPPORTED}
    found = (one for one in problems(made, item) if one.kind and (one.kind.wrong or one.kind in bad))
    return next(found, None)


_NO_FIELDS = " or any other, as its keys are opaque; ask without one"


def _unreadable(error: OSError) -> Problem:
    detail = f"it cannot be read ({error.strerror}), not by gpucache or programs of this user"
    return Problem(FindingKind.UNTRUSTED, detail)


def _unread(entry: CacheEntry, error: OSError) -> FormatError:
    return FormatError(f"{entry.path} cannot be read ({error.strerror})")
