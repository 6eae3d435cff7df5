"""A store on another machine behind our local caches, as a program asks it while it waits for an entry.

Owns the limits of time, when the store is not used for a minute, and the one warning that says so: a program
goes on as without the store. An entry is returned only if a trusted key signed it for the requested key, and
if every byte of it is sound and true. Must not know requests, or where an entry is kept.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

from gpucache.caches.portable import of_own
from gpucache.errors import FormatError, GpucacheError, UsageError
from gpucache.host.deadlines import within
from gpucache.model import CacheKey, Entry
from gpucache.remote import own_entries
from gpucache.remote.objects import AT_ONCE, File, Files, Limits, Objects, is_folder, open_objects, public
from gpucache.remote.records import Signed, record_of, signed
from gpucache.remote.signing import UNSIGNED, SigningKey, TrustedKeys, read_trusted, signing_key
from gpucache.settings import Remote, own_key_place
from gpucache.store.format import encode, parse_true
from gpucache.units import format_count

_MOST_BYTES = 256 << 20
"""The largest object that is read, and how many bytes may wait to be sent."""
_BATCH_BYTES = 8 << 20
"""After how many bytes no more entries are sent at a time."""
_PAUSE_S = 60.0
"""How long no request is sent to a store that failed or cost more than it saved."""
_ENOUGH = 0.8
"""The part of the time limit after which no request is sent, as its reply would come too late."""
UNBELIEVED = (
    "GPUCACHE_TRUSTED_KEYS names no key, and you have none, so no entry is believed; set it to the .pub file "
    "of the key that signs them"
)
MADE = 'made the key {}, which signs the entries that are sent; other users set GPUCACHE_TRUSTED_KEYS="{}"'
"""The sentence on a key that was made for a store in a directory."""

Fetched = tuple[Entry, bytes]


class _Opened(NamedTuple):
    objects: Objects
    trusted: TrustedKeys


class _Budget:
    """The time that a process waited for a store in all its threads, less what its hits saved."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._under_way = 0
        self._began = 0.0
        self.waited_s = self.saved_s = 0.0

    def begin(self) -> float:
        """Begin a wait; returns the seconds that are left for it."""
        with self._lock:
            now = time.monotonic()
            if not self._under_way:
                self._began = now
            self._under_way += 1
            return self.left_s()

    def left_s(self) -> float:
        return self.limit_s - (self.waited_s + time.monotonic() - self._began - self.saved_s)

    def end(self, saved_s: float) -> bool:
        """End a wait; returns whether the store has cost too much by now."""
        with self._lock:
            self._under_way -= 1
            self.saved_s += saved_s
            now = time.monotonic()
            self.waited_s, self._began = self.waited_s + now - self._began, now
            return self.waited_s - self.saved_s > _ENOUGH * self.limit_s


class RemoteStore:
    """The store of ``GPUCACHE_REMOTE`` in one process; a forked child begins anew. Raises nothing.

    Further stores are asked in order for what the one before lacks, and share the time that asking may cost.
    Builds go to the first; what a later one has is not sent to an earlier one.
    """

    def __init__(
        self, settings: Remote, trusted_keys: str, signing_key: Path | None, warn: Callable[[str], object]
    ) -> None:
        """The keys are those that the variables name. ``warn`` gets each sentence once, from any thread."""
        if not settings.patient:
            settings = settings._replace(timeout_s=settings.timeout_s / (1 + len(settings.others)))
        self._settings = settings
        later = (settings._replace(url=url, others=(), writes=False) for url in settings.others)
        self._others = [RemoteStore(one, trusted_keys, signing_key, warn) for one in later]
        self._trusted_keys = trusted_keys
        self._signing_key = signing_key
        self._warn = warn
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._opened: _Opened | None = None
        self._budget = _Budget(self._settings.timeout_s)
        self._reads_from = self._writes_from = 0.0
        self._explained = False
        self._said: dict[str, object] = {}
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._unnamed = False
        """Whether some sent entries are not in the index yet, which readers of a web server need."""
        self._sender: threading.Thread | None = None

    @property
    def writes(self) -> bool:
        """Whether it takes the builds of this machine."""
        return self._settings.writes and time.monotonic() >= self._writes_from

    @property
    def queried(self) -> str:
        """The URLs of the stores that are queried."""
        here = self._opened.objects.url if self._opened and time.monotonic() >= self._reads_from else ""
        return " ".join(filter(None, (here, *(one.queried for one in self._others))))

    def find(self, wanted: Sequence[Sequence[CacheKey]]) -> list[Fetched | None]:
        """For each request the entry of its first key that a store has; all are requested together."""
        found = self._find(wanted)
        for store in self._others:
            left = [() if one else keys for keys, one in zip(wanted, found, strict=True)]
            found = [one or new for one, new in zip(found, store.find(left), strict=True)]
        return found

    def _find(self, wanted: Sequence[Sequence[CacheKey]]) -> list[Fetched | None]:
        found: list[Fetched | None] = [None] * len(wanted)
        if not any(wanted) or time.monotonic() < self._reads_from:
            return found
        patient = self._settings.patient and self._settings.timeout_s * -(-sum(map(len, wanted)) // AT_ONCE)
        budget, saved_ns = self._budget, 0
        limit_s = budget.begin()
        try:
            opened = self._open()
            found, wrong = within(patient or limit_s, lambda: _read(opened, wanted))
            saved_ns = sum(one[0].head.compile_ns or 0 for one in found if one)
            if wrong:
                self._say("lie", f"{opened.objects.url} has an entry that is not used: {wrong}")
            lacking = [keys for keys, one in zip(wanted, found, strict=True) if keys and one is None]
            if lacking and not (wrong or self._explained):
                self._explained = True
                with suppress(Exception):  # a store that can be read only by names, or that is slow
                    limit_s = patient or budget.left_s()
                    if why := within(limit_s, lambda: _why_missed(opened, lacking[0], writes=self.writes)):
                        self._say("missed", f"GPUCACHE_REMOTE missed: {why}")
        except TimeoutError:
            self._writes_from = _over_s()
            if patient:
                self._stop(
                    f"{self._url} did not reply within {patient:g} s; check that it can be reached, or raise "
                    f"{self._settings.limited_by}"
                )
        except Exception as error:  # for any error of a store or its library, the program goes on
            self._stop(error)
        if budget.end(saved_ns / 1e9) and not patient and budget is self._budget:
            self._reads_from = _over_s()
            self._budget = _Budget(budget.limit_s)
            self._say(
                "slow",
                f"GPUCACHE_REMOTE is not asked for a minute: waiting for {self._url} took "
                f"{budget.waited_s:.1f} s and saved {budget.saved_s:.1f} s; name a nearer store, or raise "
                f"{self._settings.limited_by}",
            )
        return found

    def send(self, entry: Entry) -> None:
        """Send an entry of this machine, in a thread."""
        if not self.writes:
            return
        with self._changed:
            self._waiting_bytes += len(entry.payload)
            if self._waiting_bytes > _MOST_BYTES:
                self._waiting_bytes -= len(entry.payload)
                self._say_left(1)
                return
            self._waiting.append(entry)
            if self._sender is None:
                # No daemon: every exit that joins threads waits for it, which is not long.
                self._sender = threading.Thread(target=self._send_all, name="gpucache-send")
                try:
                    self._sender.start()
                except RuntimeError as error:  # no thread can be started any more
                    self._sender = None
                    self._stop_sending(error)

    def flush(self, limit_s: float | None = None) -> None:
        """Wait until everything is sent or given up, or for so many seconds."""
        with self._changed:
            mine = self._sender is threading.current_thread()
            if not mine and not self._changed.wait_for(lambda: self._sender is None, limit_s):
                self._say_left(len(self._waiting) + 1)

    def warn(self, sentence: str) -> None:
        self._say(sentence, sentence)

    def _open(self) -> _Opened:
        if self._opened is None:  # two threads may both open it
            limit_s = self._settings.timeout_s
            # Twice the time, so that our own limit ends first, whose error names the variable.
            limits = Limits(connect_s=2 * limit_s, request_s=2 * limit_s, retries=0)
            objects = open_objects(self._settings.url, limits)
            if self._settings.writes and is_folder(objects):
                with suppress(UsageError):  # which sending reports
                    self._key(objects)
            trusted = read_trusted(self._trusted_keys, self._signing_key)
            self._opened = _Opened(objects, trusted)
        return self._opened

    @property
    def _url(self) -> str:
        return self._opened.objects.url if self._opened else public(self._settings.url)

    def _stop(self, error: Exception | str) -> None:
        self._reads_from = _over_s(error)
        if str(error) != UNBELIEVED:  # sending needs no trusted key
            self._writes_from = self._reads_from
        self._say("off", f"GPUCACHE_REMOTE is not used: {_told(error)}")

    def _say(self, what: str, sentence: str) -> None:
        mine = object()
        if self._said.setdefault(what, mine) is mine:  # two threads may come to it at once
            self._warn(sentence)

    def _send_all(self) -> None:
        """In the sending thread: send the waiting entries, several at a time."""
        over_s: float | None = None
        while True:
            with self._changed:
                if self.writes and over_s is not None and time.monotonic() > over_s:
                    self._say_left(len(self._waiting))
                    self._writes_from = inf
                batch, size = list[Entry](), 0
                while self.writes and self._waiting and len(batch) < AT_ONCE and size < _BATCH_BYTES:
                    batch.append(self._waiting.popleft())
                    size += len(batch[-1].payload)
                self._waiting_bytes -= size
                if not batch:
                    self._waiting.clear()
                    self._waiting_bytes = 0
                    self._sender = None
                    self._changed.notify_all()
                    return
            try:
                within(self._settings.timeout_s, partial(self._create, batch))
            except TimeoutError:  # and it goes on
                self._writes_from = _over_s()
                self._say(
                    "late",
                    f"sending to {self._url} took longer than {self._settings.timeout_s:g} s, so no more is "
                    "sent for a minute; 'gpucache push' sends what is missing",
                )
            except Exception as error:
                self._stop_sending(error)
            if self._unnamed and not self._waiting:
                with suppress(Exception):  # the next push does it
                    within(self._settings.timeout_s, self._finish)
            if over_s is None and not threading.main_thread().is_alive():
                over_s = time.monotonic() + self._settings.timeout_s

    def _create(self, entries: Sequence[Entry]) -> None:
        from gpucache.remote.catalogue import catalogues_of, write_catalogue  # which no hit needs
        from gpucache.remote.removal import SIGN, SIGN_TEXT

        objects = self._open().objects
        if not objects.writes:
            raise UsageError(f"{objects.url} can only be read; unset GPUCACHE_REMOTE_WRITE")
        key = self._key(objects)
        records, data_of, files = dict[str, Signed](), {SIGN: SIGN_TEXT}, dict[str, File]()
        for entry in entries:
            packed = of_own(entry.key, entry.head, encode(entry))
            record = signed(record_of(packed), key)
            name, data = own_entries.object_of(record, packed)
            records[name], data_of[name], files[name] = record, data, own_entries.file_of(record)
        if not objects.served:  # all in one pack
            data_of |= catalogues_of(records.values(), key)
        arrived = objects.create(data_of.items(), Files(files, []))
        created = [records[name] for name, new in arrived if new and name in records]
        if objects.served and created:
            write_catalogue(objects, created, key)
            self._unnamed = True

    def _finish(self) -> None:
        from gpucache.remote.catalogue import finish_catalogue  # which no hit needs

        self._unnamed = False
        objects = self._open().objects
        finish_catalogue(objects, self._key(objects))

    def _key(self, objects: Objects) -> SigningKey:
        key, made = signing_key(self._signing_key, make=is_folder(objects))
        if made:
            self._say("made", MADE.format(own_key_place(), key.public.text))
        return key

    def _stop_sending(self, error: Exception | str) -> None:
        self._writes_from = _over_s(error)
        self._say("unsent", f"nothing is sent to GPUCACHE_REMOTE: {_told(error)}")

    def _say_left(self, count: int) -> None:
        entries = format_count(count, "entry", "entries")
        self._say(
            "left",
            f"{entries} could not be sent to {self._url} in time; 'gpucache push' sends the missing ones",
        )


def _over_s(error: Exception | str = "") -> float:
    """When the pause after a failure is over: never after a mistake in the settings."""
    return inf if isinstance(error, UsageError) else time.monotonic() + _PAUSE_S


def _told(error: Exception | str) -> str:
    if isinstance(error, GpucacheError):
        return error.message
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"


def _read(opened: _Opened, wanted: Sequence[Sequence[CacheKey]]) -> tuple[list[Fetched | None], str]:
    """The entries, and the fault of the first one that is not used; raises GpucacheError."""
    objects, trusted = opened
    signers = list(trusted.keys)
    if not signers:
        raise UsageError(UNBELIEVED)
    asked = {
        own_entries.object_name(key, signer): (key, signer)
        for keys in wanted
        for key in keys
        for signer in signers
    }
    found: dict[tuple[CacheKey, str], Fetched] = {}
    wrong = ""
    for name, data in objects.read(asked, _MOST_BYTES):
        if data is None or name not in asked:
            continue
        key, signer = asked[name]
        try:
            file = own_entries.decode(key, signer, data, trusted)[1].files[0].data
            found[key, signer] = parse_true(file, key), file
        except FormatError as error:
            wrong = wrong or f"{key.short}: {error}; run 'gpucache verify {objects.url}'"
    chosen = (
        (found.get((key, signer)) for key in keys for signer in signers if (key, signer) in found)
        for keys in wanted
    )
    return [next(some, None) for some in chosen], wrong


def _why_missed(opened: _Opened, keys: Sequence[CacheKey], *, writes: bool) -> str:
    """A sentence on a store that is none, or whose entry of a key is not believed; empty if it merely lacks
    the entry. Raises GpucacheError."""
    from gpucache.remote.catalogue import NO_STORE, not_believed, read_index  # which no hit needs
    from gpucache.remote.removal import is_signed

    objects, trusted = opened
    if not is_signed(objects):
        if is_folder(objects):
            next(objects.listed(""), None)  # raises RemoteError unless it is a directory
        if writes and Path(objects.url).is_dir():  # that somebody made for this
            return ""
        told = "{} is not a store of gpucache yet; sending makes one there" if writes else NO_STORE
        return told.format(objects.url)
    if is_folder(objects) or not objects.served:  # a bucket's list has no bound on its bytes
        for key in keys:
            start = own_entries.object_name(key, UNSIGNED).rpartition("/")[0]
            for one in objects.listed(f"{start}/"):
                found, signer = own_entries.named(one.name)
                if found == key and signer not in trusted.keys:
                    return f"{objects.url} has {key.short}, but {not_believed(signer)}"
    elif (index := read_index(objects)) and index.signers and not index.signers & trusted.keys.keys():
        return f"{objects.url} has entries, but of one {not_believed(min(index.signers))}"
    return ""
