"""Our own store, shown as one cache among others.

Owns the translation of stored entries to the interface of every cache, and the checks that only our format
allows: the key against its key fields, the payload against the entry's head.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.verify import Checked, Finding
from gpucache.caches import registry
from gpucache.caches.interface import OwnRoot, Wanted
from gpucache.caches.places import Place, Places, Var
from gpucache.caches.portable import (
    Moving,
    PortableEntry,
    Restored,
    of_own,
    own_name,
    restored_ahead,
)
from gpucache.caches.stamps import Seen
from gpucache.errors import CacheUnusableError, FormatError, UsageError
from gpucache.host import os_errors
from gpucache.model import (
    Artifact,
    ArtifactKind,
    BuildRequest,
    CacheKey,
    Checks,
    Entry,
    EntryHead,
    Toolchain,
)
from gpucache.settings import find_root
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import Claim, false_claims
from gpucache.store.interface import ALL, Absent, Damaged, ScannedEntry, Share
from gpucache.store.layout import ENTRIES, ENTRY_SUFFIX
from gpucache.store.trust import RootRefused, root_state
from gpucache.units import format_age, format_count, format_size

if TYPE_CHECKING:
    from gpucache.answers.evict import Kept
    from gpucache.answers.why import Reach


class OwnCache(OwnRoot):
    """A gpucache root as one cache among others: its entries store how they were built."""

    name = registry.OWN
    together = 100_000
    """After this many removals their programs are recorded; until then each removal takes 40 bytes."""
    moving = Moving(tells="build options with the values of -D, and paths of headers")
    divides = True

    def __init__(self, store: DirectoryStore, location: Location, lost: Sequence[str] = ()) -> None:
        """``lost`` are sentences about parts that could not be read when the root was opened."""
        self.store = store
        self._location = location
        self._lost = lost

    def location(self) -> Location:
        return self._location

    def scan(self, *, beside: bool = False) -> Iterator[CacheEntry]:
        return iter(self.entries())

    def entries(self, *, heads: bool = True) -> "OwnEntries":
        """Every entry, read again by each walk; without ``heads`` by name and status only."""
        return OwnEntries(self.store, heads)

    def unread(self) -> list[str]:
        return [*self._lost, *self.store.unread()]

    def find(self, prefix: str) -> list[CacheEntry]:
        found = (self.store.look_at(key) for key in self.store.find(prefix))
        uses_show = _uses_show(self.store)
        return [_entry(scanned, uses_show) for scanned in found if scanned is not None]

    def report(self, entry: CacheEntry) -> EntryReport:
        from gpucache.payload import describe

        whole = self._whole(entry)
        info = describe(whole.payload)
        return EntryReport(
            entry=entry,
            key_fields=whole.detail.key_fields,
            payload=(*info.pairs, ("SHA-256", whole.head.payload_sha256)),
            compile_ns=whole.head.compile_ns,
            build_log=whole.detail.build_log,
            tool_version=whole.detail.tool_version,
            lowered_names=tuple(whole.head.lowered_names.items()),
            provenance=whole.detail.provenance,
            local_sizes=whole.head.local_sizes,
            checks=whole.head.checks,
            failures=whole.head.failures,
        )

    def artifact(self, entry: CacheEntry) -> Artifact:
        whole = self._whole(entry)
        try:
            kind = ArtifactKind(whole.head.artifact_kind)
        except ValueError:  # ProgramCache stores any bytes
            raise FormatError(
                f"the entry {entry.key[:12]} has bytes of a kind that no driver takes"
            ) from None
        return Artifact(
            kind,
            whole.payload,
            compile_ns=whole.head.compile_ns,
            lowered_names=whole.head.lowered_names,
        )

    def check(self, entry: CacheEntry) -> Checked:
        scanned = _scanned(entry)
        if damage := scanned.damage:
            if damage.kind is None:
                return Checked(entry.key, unchecked=damage.detail)
            return Checked(entry.key, (Finding.about(entry, damage),))
        answer = self.store.check(scanned)
        if isinstance(answer, Absent):
            if answer.reason:
                return Checked(entry.key, unchecked=answer.reason)
            return Checked(entry.key, notes=("it was removed while it was being checked",), counts=False)
        if isinstance(answer, Damaged):
            return Checked(entry.key, (Finding.about(entry, Problem(answer.damage, answer.detail)),))
        return _judged(entry, tuple(false_claims(answer)))

    def count(self) -> int:
        return self.store.count()

    def checked(self, share: Share = ALL) -> Iterator[tuple[CacheEntry, Checked]]:
        uses_show = _uses_show(self.store)
        for scanned, claims in self.store.scan_whole(share):
            entry = _entry(scanned, uses_show)
            yield entry, self.check(entry) if claims is None else _judged(entry, claims)

    def leftovers(self) -> Iterator[Checked]:
        for leftover in self.store.leftovers(time.time_ns()):
            size, age = format_size(leftover.size_bytes), format_age(leftover.age_ns)
            what = f"{leftover.detail}, {size}, {age} old"
            detail = what if leftover.age_ns else leftover.detail
            finding = Finding(self.name, leftover.path.name, FindingKind.LEFTOVER, detail)
            yield Checked(str(leftover.path), (finding,), counts=False)

    def _whole(self, entry: CacheEntry) -> Entry:
        answer = self.store.check(_scanned(entry))
        if isinstance(answer, Entry):
            return answer
        why = answer.detail if isinstance(answer, Damaged) else answer.reason or "it is gone"
        raise FormatError(f"the entry {entry.key[:12]} cannot be read: {why}; run 'gpucache verify'")

    def extract(self, entry: CacheEntry) -> bytes:
        from gpucache.payload import containers

        payload = self._whole(entry).payload
        return containers.binary(payload) if payload.startswith(containers.MAGIC) else payload

    def remove(self, entry: CacheEntry, why: str) -> "Kept | None":
        return self.store.remove(_scanned(entry), why)

    def remove_together(self, entries: Iterable[CacheEntry], why: str) -> "Iterator[Kept | None]":
        from gpucache.answers.evict import ALL  # which nothing but a removal needs

        return self.store.remove_together(map(_scanned, entries), why, everything=why == ALL)

    def pack(self, entry: CacheEntry) -> PortableEntry:
        from gpucache.store.format import encode  # only entries that move need it

        whole = self._whole(entry)
        for _, detail in false_claims(whole):
            raise FormatError(f"{detail}; run 'gpucache verify --repair'")
        return of_own(whole.key, whole.head, encode(whole))

    def having(self, keys: Collection[str]) -> Callable[[str, Collection[str]], bool]:
        with self.store.adopting():
            there = set(filter(self._is_sound, keys))
        return lambda key, _: key in there

    def seen_now(self, keys: Collection[str]) -> Iterator[tuple[str, Seen]]:
        with self.store.adopting():
            for key in keys:
                if status := self.store.status(CacheKey(key)):
                    yield key, {key: status}

    def _is_sound(self, key: str) -> bool:
        status = self.store.status(CacheKey(key))
        if status is None or self.sound.digest(key, {key: status}) is not None:
            return status is not None
        if found := self.store.is_sound(CacheKey(key)):
            self.sound.note(key, {key: status})
        return found

    def restore(self, entries: Iterable[PortableEntry]) -> Iterator[Restored]:
        waiting, failed, done = dict[CacheKey, None](), dict[CacheKey, Restored](), set[CacheKey]()

        def start(entry: PortableEntry) -> Callable[[], Restored]:
            restored = self._restored(entry)
            if not restored.done:
                return lambda: restored
            waiting[CacheKey(entry.key)] = None
            return partial(end, CacheKey(entry.key), restored)

        def end(key: CacheKey, restored: Restored) -> Restored:
            if key in waiting:
                try:
                    self.store.sync(waiting)
                except CacheUnusableError as error:
                    wrong = Restored(done=False, reason=str(error), failed=True)
                    failed.update(dict.fromkeys(waiting, wrong))
                except OSError as error:
                    failed.update(dict.fromkeys(waiting, self._unwritten(error)))
                done.update(waiting)
                waiting.clear()
            return failed.get(key, restored)

        with self.store.adopting():
            try:
                yield from restored_ahead(start, entries)
            finally:
                with suppress(OSError, CacheUnusableError):  # without the names they are pulled again
                    self.store.sync_folders(done)

    def _restored(self, entry: PortableEntry) -> Restored:
        """Put an entry in place, not durably yet."""
        if not self.store.writable:
            why = f"the cache at {self.store.root} is read-only; unset GPUCACHE_READ_ONLY"
            return Restored(done=False, reason=why, failed=True)
        try:
            key = CacheKey(entry.key)
            if [(self.name, own_name(key))] != [(entry.system, one.name) for one in entry.files]:
                raise FormatError(f"it is laid out as no entry of {self.name}")
            done = self.store.adopt(key, entry.files[0].data)
        except (FormatError, ValueError) as error:  # the latter for text that is not a key
            return Restored(done=False, reason=str(error), damaged=True)
        except CacheUnusableError as error:
            return Restored(done=False, reason=str(error), failed=True)
        except OSError as error:
            return self._unwritten(error)
        return Restored(done=done, present=not done)

    def _unwritten(self, error: OSError) -> Restored:
        why = f"{self.store.root} cannot be written ({os_errors.reason(error)}); {os_errors.remedy(error)}"
        return Restored(done=False, reason=why, failed=True)

    def beside_bytes(self) -> int:
        return self.store.beside_bytes()

    def sweep(self, max_size_bytes: int | None, why: str = "") -> str:
        swept = self.store.sweep(0 if why else max_size_bytes, why)
        if not swept.files:
            return ""
        files, freed = format_count(swept.files, "other file"), format_size(swept.freed_bytes)
        told = f"Also removed {files} ({freed}): leftovers"
        if why:
            return f"{told} and all records; --misses and --stats begin anew."
        return told + (" and the oldest records." if max_size_bytes is not None else ".")

    def explain(self, wanted: Wanted) -> "Iterator[Reach]":
        raise UsageError(
            f"{', '.join(wanted)}: programs of our own cache are queried by their source; "
            "give it with the options it is built with"
        )

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        if entry is None:
            gone = [item for item in self.store.leftovers(time.time_ns()) if str(item.path) == checked.entry]
            repaired = all(self.store.remove_leftover(item) for item in gone)
            return _marked(checked) if repaired else checked
        wrong = next((finding for finding in checked.findings if finding.kind.wrong), None)
        if wrong is None:
            return checked
        moved = self.store.quarantine(_scanned(entry), f"{wrong.kind}: {wrong.detail}")
        return _marked(checked) if moved else checked


def _marked(checked: Checked) -> Checked:
    return checked._replace(
        findings=tuple(
            finding._replace(repaired=finding.kind.wrong or finding.kind is FindingKind.LEFTOVER)
            for finding in checked.findings
        ),
    )


def _judged(entry: CacheEntry, claims: Sequence[Claim]) -> Checked:
    return Checked(entry.key, tuple([Finding.about(entry, Problem(*claim)) for claim in claims]))


def _uses_show(store: DirectoryStore) -> bool:
    """Whether uses are recorded in a root; not if programs or other users only read it."""
    try:
        mode = store.root.joinpath(*ENTRIES).stat().st_mode
    except OSError:
        return store.writable
    return store.writable and not mode & (stat.S_IRGRP | stat.S_IROTH)


def _entry(scanned: ScannedEntry, uses_show: bool) -> CacheEntry:
    folder, name, identity, size_bytes, head, *_ = scanned
    key, path, last_used_ns = name.removesuffix(ENTRY_SUFFIX), f"{folder}{os.sep}{name}", identity.mtime_ns
    if head is None:
        times_ns = last_used_ns, last_used_ns
        return CacheEntry(
            OwnCache.name, key, path, size_bytes, *times_ns, damage=scanned.damage, handle=scanned
        )
    toolchain, of_device, fields = _shared(
        head.toolchain, head.toolchain_identity, head.language, head.artifact_kind
    )
    # By position as far as that can be read: there may be a hundred thousand.
    return CacheEntry(
        OwnCache.name,
        key,
        path,
        size_bytes,
        head.created_ns,
        last_used_ns,
        head.program,
        head.target,
        head.artifact_kind,
        " ".join(head.options) if head.checks == _UNCHECKED and not head.lowered_names else _variant(head),
        head.located or not head.language,
        toolchain,
        of_device,
        head.payload_sha256,
        fields,
        compile_ns=head.compile_ns,
        place=head.place,
        uses_show=uses_show,
        handle=scanned,
    )


_UNCHECKED = Checks.NONE.value
_Fields = tuple[tuple[str, str], ...]


@lru_cache(maxsize=256)
def _shared(
    toolchain: _Fields, identity: tuple[str, ...], language: str, kind: str
) -> tuple[_Fields, tuple[str, ...], _Fields]:
    """The values that all entries of a toolchain share, as a hundred thousand of them may be in memory."""
    return toolchain, identity, (("language", language), ("artifact kind", kind), *toolchain)


def _variant(head: EntryHead) -> str:
    mode = [] if head.checks == Checks.NONE else [f"checks={head.checks}"]
    return " ".join([*head.options, *mode, *sorted(head.lowered_names)])


def _scanned(entry: CacheEntry) -> ScannedEntry:
    if not isinstance(entry.handle, ScannedEntry):
        raise TypeError("an entry of another cache")
    return entry.handle


class OwnEntries:
    """The entries of a root: each walk over them is a scan."""

    def __init__(self, store: DirectoryStore, heads: bool) -> None:
        self._store = store
        self._heads = heads

    def __iter__(self) -> Iterator[CacheEntry]:
        return map(_entry, self._store.scan(heads=self._heads), repeat(_uses_show(self._store)))


class OwnSystem(Places):
    """Our own store as one system among others, whose keys are explained from the sources themselves."""

    name = registry.OWN
    title = "gpucache's own cache"
    owner = registry.OWN
    place = Place((Var("GPUCACHE_DIR"),), nowhere="this user has no home directory; set GPUCACHE_DIR")
    wanted: Mapping[str, str] = {}

    def question(self, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        return {}

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        root, decided_by = find_root(environ)
        if root is not None:
            yield Location(cls.name, str(root), decided_by, enabled=True)

    def recognises(self, path: Path) -> bool:
        return registry.is_own(path)

    def open(self, location: Location, clock: Callable[[], int] = time.time_ns) -> OwnCache:
        root = Path(location.root)
        state = root_state(root)
        if isinstance(state, RootRefused):
            raise CacheUnusableError(state.reason)
        return OwnCache(DirectoryStore(root, writable=False), location)


SYSTEM = OwnSystem()
