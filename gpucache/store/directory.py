"""Our own cache in a directory: entries published atomically, read without locks, checked at every hit.

Assembles the modules of this package, which keep the promises: ``format`` the bytes, ``root_folder`` the
atomic writes, ``trust`` whose files are read. Must not know the content of a payload, or print, or decide
which entries to evict.

Owns the quarantine of damaged entries.
"""

import errno
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, lru_cache
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder, sync_all
from gpucache.host import os_errors
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead, FindingKind
from gpucache.store import layout, lock, records, scan
from gpucache.store.bounded_folder import BoundedFolder, Bounds
from gpucache.store.format import (
    SEAL,
    Description,
    EntryFormatError,
    encode,
    parse_true,
    read_description,
    read_head,
    read_whole,
)
from gpucache.store.history import History
from gpucache.store.interface import (
    ALL,
    UNREADABLE,
    Absent,
    Damaged,
    Event,
    FileIdentity,
    Found,
    Leftover,
    ScannedEntry,
    Share,
)
from gpucache.store.missed import Missed
from gpucache.store.reading import EntryReader, unreadable
from gpucache.store.root_folder import UNUSABLE, RootFolder
from gpucache.store.scan import Judged, Swept, identity_of
from gpucache.store.trust import UntrustedFileError, open_trusted

if TYPE_CHECKING:
    from gpucache.answers.evict import Kept

_ANSWERS = 1 << 13
_SAMPLED_S = 1.0
_PUTS = 64
"""After this many entries, leftovers are looked for."""
_SYNCED_TOGETHER = 16


class DirectoryStore(EntryReader):
    """A store below a root directory, which the first write creates.

    With ``shared``, other users can read its directories and files. Without ``writable`` it never changes
    anything: no last use, no quarantine, no history, no journal.
    """

    def __init__(self, root: Path, *, writable: bool, shared: bool = False) -> None:
        super().__init__(root, writable=writable, shared=shared)
        self.history = History(self._root)
        self.missed = Missed(self._root)
        self.rows = records.rows(self._root)
        """The rows: answers to questions of programs, which go with the root wherever it is moved."""
        self.adopting = self._root.kept
        """Begins a block in which many entries are adopted."""
        self._quarantine = Quarantine(self._root, self.history)
        self._unread: dict[Path, str] = {}
        self._puts = count()
        self._settles, self._unsynced = False, list[CacheKey]()
        self._sealed: dict[CacheKey, tuple[bytes, EntryHead]] = {}
        """Of entries that were just published, whose rows are made next."""
        self._sampled: tuple[float, list[ScannedEntry]] = (-_SAMPLED_S, [])

    def publish(self, entry: Entry) -> int:
        """Put an entry in place atomically and return its size in bytes.

        Removes files that killed writers left more than an hour ago. Writes no history. Raises OSError, or
        CacheUnusableError for the root.
        """
        data, settles = encode(entry), self._settles
        self._put(entry.key, data, entry.head.created_ns, durable=not settles)
        if settles:
            self._unsynced.append(entry.key)
            if not self._settles:  # another thread has synced the others meanwhile
                self.sync_all()
        self._sealed[entry.key] = data[SEAL], entry.head
        self._remove_left()
        return len(data)

    def adopt(self, key: CacheKey, data: bytes) -> bool:
        """Put the bytes of an entry's file in place as they are, unless a sound entry exists; see ``sync``.

        Returns whether it was put, which its program's history then has. Raises FormatError if anything in
        them is not sound or not true, OSError, or CacheUnusableError for the root.
        """
        whole = parse_true(data, key)
        if not self.put_file(whole, data, whole.head.created_ns):
            return False
        source = next((field.value for field in whole.detail.key_fields if field.label == "source"), "")
        head = whole.head
        event = Event(
            time.time_ns(), "pulled", key.hex, head.target, source=source[:16], options=head.options
        )
        self.history.record(head.program, event)
        return True

    def sync(self, keys: Iterable[CacheKey]) -> None:
        """Let the files of entries survive a power cut, but those that somebody removed since.

        All are open at a time. Raises OSError, or CacheUnusableError for the root.
        """
        with ExitStack() as opened:
            folders, fds = dict[tuple[str, ...], Folder](), list[int]()
            for key in keys:
                with suppress(FileNotFoundError):
                    place = layout.entry_folder(key)
                    if place not in folders:
                        folders[place] = opened.enter_context(self._root.open(*place))
                    fds.append(folders[place].open_file(layout.entry_name(key)))
                    opened.callback(os.close, fds[-1])
            sync_all(fds)

    def sync_folders(self, keys: Iterable[CacheKey]) -> None:
        """The same for the names of entries whose files are synced; raises as that."""
        for place in sorted({layout.entry_folder(key) for key in keys}):
            with suppress(FileNotFoundError), self._root.open(*place) as folder:
                folder.sync()

    @contextmanager
    def settling(self) -> Iterator[None]:
        """A block that publishes some of many entries; from then on they are synced some at a time.

        Until then a power cut may leave a file empty or short, which is a miss. See ``sync_all``.
        """
        self._settles = True
        with self._root.kept():
            yield
        if len(self._unsynced) >= _SYNCED_TOGETHER:
            self.sync_all()

    def sync_all(self) -> None:
        """Let the entries survive a power cut that ``settling`` has published since."""
        self._settles, keys = False, list[CacheKey]()
        with suppress(IndexError):  # other threads add and take, too
            while True:
                keys.append(self._unsynced.pop())
        with suppress(*UNUSABLE):
            self.sync(keys)
            self.sync_folders(keys)

    def put_file(self, whole: Entry, data: bytes, used_ns: int) -> bool:
        """``adopt`` for verified bytes, given the entry in them; it was used last at ``used_ns``."""
        if isinstance(self.get(whole.key, use=False), Found):
            return False
        self._put(whole.key, data, used_ns, durable=False)
        self._remove_left()
        return True

    def _remove_left(self) -> None:
        if next(self._puts) % _PUTS == 0:
            self._sealed.clear()
            scan.remove_left(self._root, time.time_ns())

    def _put(self, key: CacheKey, data: bytes, used_ns: int, *, durable: bool = True) -> None:
        try:
            self._put_once(key, data, used_ns, durable=durable)
        except IsADirectoryError:
            scanned = self.look_at(key)
            if scanned is None or not self.quarantine(scanned, "a directory had its name"):
                raise
            self._put_once(key, data, used_ns, durable=durable)

    def _put_once(self, key: CacheKey, data: bytes, used_ns: int, *, durable: bool) -> None:
        with self._root.make(*layout.entry_folder(key)) as folder:
            self._root.put(folder, layout.entry_name(key), data, used_ns=used_ns, durable=durable)

    def is_marked(self) -> bool:
        """Whether the root contains something that only gpucache makes; elsewhere nothing is removed."""
        return scan.is_marked(self._root)

    def prepare(self) -> None:
        """Create the root and check that it is writable; raises CacheUnusableError with the remedy."""
        try:
            self._root.make(*layout.TMP).close()
            if not os.access(self.root, os.W_OK):
                read_only = sys.platform != "win32" and os.statvfs(self.root).f_flag & os.ST_RDONLY
                number = errno.EROFS if read_only else errno.EACCES
                raise OSError(number, os.strerror(number))
        except OSError as error:
            raise CacheUnusableError(
                f"the cache root {self.root} cannot be written ({os_errors.reason(error)}); "
                f"{os_errors.remedy(error)}, or name another with --root or GPUCACHE_DIR"
            ) from None

    def detail(self, key: CacheKey) -> EntryDetail | None:
        """The detail of an entry; None if no sound entry exists."""
        with suppress(EntryFormatError):
            description = self._description(key)
            return None if description is None else description.detail()
        return None

    def seal(self, key: CacheKey) -> tuple[bytes, EntryHead] | None:
        """The checksum of an entry's description, with its head; None if no sound description exists."""
        if (known := self._sealed.pop(key, None)) is not None:
            return known
        description = self._description(key)
        return description and (description.header.description_checksum, description.head)

    def _description(self, key: CacheKey) -> Description | None:
        with (
            suppress(*UNUSABLE, MemoryError, EntryFormatError),
            self._root.open() as root,
            open_trusted(root, *layout.entry_folder(key), layout.entry_name(key)) as (fd, status),
        ):
            description = read_description(fd, status.st_size)
            return description if description.header.key == key else None
        return None

    def contains(self, key: CacheKey) -> bool:
        """Whether a file for this key exists; does not read it."""
        return self.status(key) is not None

    def status(self, key: CacheKey) -> os.stat_result | None:
        """The status of the file for this key; None if there is none."""
        with suppress(*UNUSABLE), self._root.open(*layout.entry_folder(key)) as folder:
            return folder.lstat(layout.entry_name(key))
        return None

    def is_sound(self, key: CacheKey) -> bool:
        """Whether a sound entry exists, read whole as by ``check``."""
        with suppress(*UNUSABLE), self._root.open(*layout.entry_folder(key)) as folder:
            return (scan.by_content(folder, layout.entry_name(key)) or (None, None))[1] is not None
        return False

    def find(self, prefix: str) -> list[CacheKey]:
        """Keys that begin with a hex prefix of two or more digits, sorted, without a full scan."""
        if not layout.is_prefix(prefix):
            return []
        with suppress(*UNUSABLE), self._root.open(*layout.ENTRIES, prefix[:2]) as folder:
            names = [found.name for found in folder.entries() if found.name.startswith(prefix)]
            fitting = (name for name in names if layout.fits(prefix[:2], name))
            return sorted(CacheKey(name.removesuffix(layout.ENTRY_SUFFIX)) for name in fitting)
        return []

    def scan(self, *, heads: bool = True) -> Iterator[ScannedEntry]:
        """Every entry below ``entries/``, sound or not, with its head only; raises CacheUnusableError.

        A directory of entries that cannot be listed is skipped, see ``unread``. Without ``heads``, and in a
        root that is marked as ours, a file with the name of an entry is not read.
        """
        unread = self._unread.setdefault
        if heads or not self.is_marked():
            return scan.scan(self._root, scan.by_head, unread, many=scan.Many().by_head)
        return scan.scan(self._root, scan.by_name, unread)

    def sample(self, most: int) -> list[ScannedEntry]:
        """So many entries, or all if there are no more, as of up to a second ago; none if unreadable."""
        sampled_s, found = self._sampled
        if time.monotonic() - sampled_s > _SAMPLED_S:
            found = []
            with suppress(OSError, CacheUnusableError):
                found = list(islice(self.scan(), most))
            self._sampled = time.monotonic(), found
        return found

    def count(self) -> int:
        """How many files have the name of an entry; raises CacheUnusableError."""
        return sum(not stray for *_, stray in scan.walk(self._root, self._unread.setdefault))

    def scan_whole(self, share: Share = ALL) -> Iterator[Judged]:
        """Like ``scan``, with each entry read whole and verified as by ``check``, and its false claims; None
        in their place if it is not sound."""
        many = scan.Many(whole=True).by_content
        return scan.scan(self._root, scan.by_content, self._unread.setdefault, share, many)

    def unread(self) -> list[str]:
        """Why directories of entries could not be listed: one sentence for each in the scans so far."""
        return list(self._unread.values())

    def look_at(self, key: CacheKey) -> ScannedEntry | None:
        """The entry of one key as a scan sees it; None if it does not exist."""
        return scan.look_at(self._root, key)

    def check(self, scanned: ScannedEntry) -> Entry | Damaged | Absent:
        """Read a scanned entry whole and verify it, with the SHA-256 of its payload.

        For ``verify``, which recomputes the key from ``detail.key_fields``. Changes nothing, not even the
        last use. Returns Absent if the entry is gone or unreadable. Raises nothing.
        """
        try:
            place, name = scan.place_of(self._root, scanned), scanned.name
            with self._root.open() as root, open_trusted(root, *place, name) as (fd, status):
                return read_whole(fd, status.st_size, scanned.key)
        except EntryFormatError as error:
            return Damaged(error.damage, error.detail, quarantined=False)
        except FileNotFoundError:
            return Absent()
        except UntrustedFileError as error:
            return Damaged(FindingKind.UNTRUSTED, str(error.strerror), quarantined=False)
        except CacheUnusableError as error:
            return Absent(str(error))
        except (OSError, MemoryError) as error:
            return Absent(unreadable(error))

    def allocated_bytes(self) -> int:
        """The bytes that all entries take on disk, found without reading them; raises CacheUnusableError."""
        total = 0
        for folder, name, _ in scan.walk(self._root):
            with suppress(OSError):
                total += scan.allocated(folder.lstat(name))
        return total

    def beside_bytes(self) -> int:
        """The bytes that all other files of the root take on disk."""
        return sum(item.allocated_bytes for item in scan.items(self._root))

    def sweep(self, max_size_bytes: int | None = None, why: str = "") -> Swept:
        """Remove the files that killed processes left, then the oldest files next to the entries.

        These may take a quarter of the limit. ``why`` is the rule that removed all entries before, if one
        did. Does nothing unless the root is marked as ours. Raises nothing.
        """
        if not self._writable or not self.is_marked():
            return Swept(0, 0)
        return scan.sweep(self._root, self.history, max_size_bytes, why, time.time_ns())

    def leftovers(self, now_ns: int) -> Iterator[Leftover]:
        """Files that belong to no entry; raises CacheUnusableError."""
        return scan.leftovers(self._root, now_ns)

    def remove(self, scanned: ScannedEntry, why: str) -> "Kept | None":
        """Remove an entry if it is unchanged since the scan, and record that; returns why it stays, or None.

        A file that is an entry only by its name is removed only from a root that is marked as ours.
        """
        (kept,) = self.remove_together([scanned], why)
        return kept

    def remove_together(
        self, going: Iterable[ScannedEntry], why: str, *, everything: bool = False
    ) -> "Iterator[Kept | None]":
        """Apply ``remove`` to one entry after the other; recorded at the end, program by program.

        ``everything`` means that all entries of the cache are to go: their programs are recorded at the
        beginning, and no entry's head is needed.
        """
        from gpucache.answers.evict import Kept  # only a removal needs this and the next
        from gpucache.store.removal import Removal

        if not self._writable:
            return (Kept(f"the cache at {self.root} is read-only") for _ in going)
        removal = Removal(self._root, self.history, self.is_marked)
        return removal.remove_all(going, why) if everything else removal.remove(going, why)

    def quarantine(self, scanned: ScannedEntry, why: str) -> bool:
        """Move an entry to ``quarantine/`` if unchanged since the scan, record it; returns whether it moved.

        An entry of a newer format stays, as a newer gpucache can use it. Everything stays in a root that is
        not marked as ours.
        """
        kept = scanned.damage is not None and scanned.damage.kind in (None, FindingKind.UNSUPPORTED)
        if kept or not self._writable or not self.is_marked():
            return False
        try:
            place = scan.place_of(self._root, scanned)
        except FileNotFoundError:
            return False
        return self._quarantine.take(place, scanned.name, scanned.identity, scanned.key, why)

    def remove_leftover(self, leftover: Leftover) -> bool:
        """Remove a leftover; returns whether it was removed."""
        marked = self._writable and self.is_marked()
        return marked and scan.remove_leftover(self._root, leftover)

    @contextmanager
    def build_missed(self) -> Iterator[bool]:
        """Be the only process that builds missed requests; yields False if another process does.

        Raises OSError, CacheUnusableError.
        """
        with (
            self._root.make(*layout.LOCKS) as folder,
            lock.single_flight(folder, layout.MISSED_LOCK, 0) as holding,
        ):
            yield holding

    def remember(self, name: str, data: bytes) -> None:
        """Keep data under a name; losing it is not an error."""
        self.memos.remember(name, data)

    def journal_tail(self, count: int) -> list[dict[str, object]]:
        return self._journal.tail(count)

    def journal_records(self) -> list[dict[str, object]]:
        return self._journal.records()

    def _take(
        self, place: tuple[str, ...], name: str, status: os.stat_result, key: CacheKey, why: str
    ) -> bool:
        return self._quarantine.take(place, name, scan.identity_of(status), key, why)


class Snapshot(DirectoryStore):
    """A store whose files are read once, for a run that looks up the same programs for many machines."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, writable=False)
        once, history = lru_cache(_ANSWERS), self.history
        self.look_at = once(self.look_at)  # type: ignore[method-assign]
        self.detail = once(self.detail)  # type: ignore[method-assign]
        self.sample = once(self.sample)  # type: ignore[method-assign]
        history.events = once(history.events)  # type: ignore[method-assign]
        history.removed = once(history.removed)  # type: ignore[method-assign]
        self._keys = cache(lambda prefix: {*self.find(prefix)})
        self._absent = cache(lambda prefix: super(Snapshot, self).get(CacheKey(prefix.ljust(64, "0"))))

    def contains(self, key: CacheKey) -> bool:
        """Whether a file for this key exists; lists its directory."""
        return key in self._keys(key.hex[:2])

    def get(self, key: CacheKey, *, use: bool = True) -> Found | Absent | Damaged:
        """The entry of a key; a key without a file gets the answer that its whole directory has."""
        return super().get(key, use=use) if self.contains(key) else self._absent(key.hex[:2])


FILE_CAP = 32
BYTES_CAP = 64 << 20
_INSTANT_DIGITS = 20


class Quarantine(BoundedFolder):
    """The quarantine of one root."""

    def __init__(self, root: RootFolder, history: History) -> None:
        bounds = Bounds(FILE_CAP, BYTES_CAP, BYTES_CAP, age=lambda name, _: int(name[:_INSTANT_DIGITS]))
        super().__init__(root, layout.QUARANTINE, layout.ENTRY_SUFFIX, bounds)
        self._history = history

    def take(
        self, place: tuple[str, ...], name: str, identity: FileIdentity, key: CacheKey, why: str
    ) -> bool:
        """Move a file of a directory in, if it is still the one that was read; returns whether it moved."""
        now_ns = time.time_ns()
        try:
            with self._root.open(*place) as folder:
                if identity_of(folder.lstat(name)) != identity:
                    return False
                head = self._head(folder, name)
                with self._root.make(*layout.QUARANTINE) as quarantine:
                    # Directories that were moved here contain foreign files, and so stay for inspection.
                    if sum(found.is_dir(follow_symlinks=False) for found in quarantine.entries()) >= FILE_CAP:
                        return False
                    folder.move(name, quarantine, f"{now_ns:0{_INSTANT_DIGITS}d}-{name}")
                    self.trim(quarantine)
        except UNUSABLE:
            return False
        program, target = (head.program, head.target) if head is not None else (UNREADABLE, "")
        self._history.record(program, Event(now_ns, "quarantined", key.hex, target, why))
        return True

    def _head(self, folder: Folder, name: str) -> EntryHead | None:
        """The head, which names the history to write; it has no checksum, so only known programs count."""
        with suppress(OSError, EntryFormatError), open_trusted(folder, name) as (fd, status):
            with suppress(EntryFormatError):
                return read_description(fd, status.st_size).head
            head = read_head(fd, status.st_size)[1]
            return head if self._history.events(head.program) else None
        return None
