"""Stores elsewhere: named objects that are created once, read whole, listed and removed.

Owns the protocol, the names, and which module serves a URL. A module is imported when its scheme is asked
for, as each has its own library. Must not know the content of objects.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, Protocol, TypeVar

from gpucache.errors import RemoteError, UsageError
from gpucache.units import printable

AT_ONCE = 16
IN_FLIGHT_BYTES = 256 << 20
"""How many bytes of objects may be sent at the same time, unless one object alone is larger."""
BATCH_BYTES = 64 << 20
"""How many bytes of objects are read together, unless one alone is larger."""
MOST_OBJECTS = 300_000
"""The most unexpected objects that a store may list."""
_MOST_SMALL = 100_000
"""The most objects that may be catalogues, which get merged, or marks, which are removed after an hour."""
_SMALL_BYTES = IN_FLIGHT_BYTES // AT_ONCE
_NAME = re.compile(r"[0-9a-z][0-9a-z._-]*(?:/[0-9a-z][0-9a-z._-]*)*")
_REMOVABLE = re.compile(
    r"(?:entries/([0-9a-f]{2})/\1[0-9a-f]{62}-(?:[0-9a-f]{16}|unsigned)|blobs/([0-9a-f]{2})/\2[0-9a-f]{62}"
    r"|catalogues/[0-9a-f]{64}(?:-[0-9a-f]{16})?|indexes/[0-9a-f]{16}|marks/[0-9a-f]{32}(?:-taken)?|uses/[0-9]{8}-[0-9a-f]{64})"
)
_CREDENTIALS = re.compile(r"^(?!file:)([A-Za-z][A-Za-z0-9+.-]+:/*).*@(?!sha256:[0-9a-f]{64}$)", re.DOTALL)
_BUCKETS = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
_MODULES = {
    "": "gpucache.remote.folder",
    "file": "gpucache.remote.folder",
    "s3": "gpucache.remote.cloud",
    "gs": "gpucache.remote.cloud",
    "az": "gpucache.remote.cloud",
    "http": "gpucache.remote.web",
    "https": "gpucache.remote.web",
    "oci": "gpucache.remote.registry",
    "oci+http": "gpucache.remote.registry",
}

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int | None, str], object]
"""Gets how many entries a push or a pull is done with, of how many, and a name of one."""


class Listed(NamedTuple):
    """An object as a listing shows it."""

    name: str
    size_bytes: int
    written_ns: int
    """When it was written, 0 if the store does not say."""


class File(NamedTuple):
    """An object as a file for other programs, in a store that has such files."""

    path: str = ""
    """The path at which its owner has the file, below the system's directory; else empty."""
    head: int = 0
    """The length of the object's head, which is not part of the file."""
    about: str = ""
    """The entry's system, target and compiler, for people."""


class Files(NamedTuple):
    """Objects as files."""

    by_name: dict[str, File]
    more: list[tuple[str, bytes]]
    """Further paths of objects that were sent before, with their bytes."""


NO_FILES = Files({}, [])


class Objects(Protocol):
    """The objects of one store. Every method raises RemoteError: one sentence that names the store and the
    remedy. A store that does not exist yet has no objects.

    Names are of lower-case letters, digits, ``.``, ``_``, ``-`` and slashes; see ``require_object_name``.
    """

    url: str
    """The store for people: without passwords."""
    lists: bool = True
    """Whether ``listed`` works: plain web servers list nothing."""
    served: bool = True
    """Whether plain web servers may serve its objects as they are, so that it needs an index."""
    writes: bool = True
    """Whether objects can be created and removed."""

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Listed]:
        """The objects whose names begin with a prefix that ends in a slash, or all for an empty one.

        A store may list ``MOST_OBJECTS`` more than are expected there.
        """

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """Some objects as they arrive, in any order, ``AT_ONCE`` of them at a time; None for one that is
        missing or larger than the limit, which is not read."""

    def create(
        self, objects: Iterable[tuple[str, bytes]], files: Files = NO_FILES
    ) -> Iterator[tuple[str, bool]]:
        """Create objects, ``AT_ONCE`` of them at a time, each whole or not at all; with False for one that
        exists, which is left as it is. The iterable is read as objects are sent, not ahead of it; ``files``
        may get the object's file then."""

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace one object by what ``change`` makes of its bytes, again if another writer is seen to have
        come between."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, by names as gpucache writes them; missing ones are no error."""

    def finish(self) -> None:
        """Show other programs what was written, after a push or a removal, if they do not see it at once."""
        return

    def close(self) -> None:
        """Close connections, if there are any; raises nothing."""
        return


class Limits(NamedTuple):
    """How long a store may take, and who may read it."""

    connect_s: float = 5.0
    request_s: float = 60.0
    """One request, and a second more for each MiB that it moves."""
    retries: int = 3
    shared: bool = False
    """Whether other users may read a new store in a directory."""

    def for_bytes(self, size_bytes: int) -> float:
        """The seconds for a request that moves so many bytes."""
        return self.request_s + size_bytes / (1 << 20)


def open_objects(url: str, limits: Limits = Limits()) -> Objects:  # noqa: B008 - frozen
    """The store of a URL or path; reads and writes nothing yet.

    Raises UsageError for a malformed URL, a scheme that is not known, or one whose extra is not installed.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or not (rest.startswith("//") or scheme in _MODULES):  # also C:\store
        scheme, rest = "", "//"
    if scheme in ("redis", "rediss"):
        raise UsageError(f"{public(url)} is in Redis, which is not supported; name a bucket: {_BUCKETS}")
    if scheme not in _MODULES or not rest.startswith("//"):
        known = ", ".join(f"{name}://" for name in _MODULES if name not in ("", "file"))
        raise UsageError(
            f"{public(url)} is not a store that gpucache knows; name a directory or a URL of {known}"
        )
    module = import_module(_MODULES[scheme])
    opened: Objects = module.open_url(url, limits)
    return opened


def is_folder(store: Objects) -> bool:
    return "://" not in store.url


class Paced:
    """A store for one command, which ends with RemoteError once all calls together waited for it ``limit_s``
    longer than for a slow but honest one: a second for each call and each MiB, and for four objects."""

    def __init__(self, store: Objects, limit_s: float) -> None:
        self._store, self._limit_s, self._behind_s = store, limit_s, 0.0
        self.url, self.lists, self.served, self.writes = store.url, store.lists, store.served, store.writes
        self.finish, self.close = partial(self._once, store.finish), store.close

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Listed]:
        return self._timed(self._store.listed(prefix, expected), lambda _: 0.005)

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        return self._timed(self._store.read(names, limit_bytes), lambda one: _fair_s(len(one[1] or b"")))

    def create(
        self, objects: Iterable[tuple[str, bytes]], files: Files = NO_FILES
    ) -> Iterator[tuple[str, bool]]:
        sizes, taken_s = dict[str, int](), list[float]()
        """The times that the caller took to give objects."""

        def given() -> Iterator[tuple[str, bytes]]:
            began = time.monotonic()
            for name, data in objects:
                taken_s.append(time.monotonic() - began)
                sizes[name] = len(data)
                yield name, data
                began = time.monotonic()
            taken_s.append(time.monotonic() - began)

        created = self._store.create(given(), files)
        return self._timed(created, lambda one: _fair_s(sizes.pop(one[0])), taken_s)

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        self._once(lambda: self._store.replace(name, change))

    def remove(self, names: Iterable[str]) -> None:
        self._once(lambda: self._store.remove(names))

    def _once(self, call: Callable[[], object]) -> None:
        began = time.monotonic()
        call()
        self._waited(time.monotonic() - began, 1.0)

    def _timed(
        self, found: Iterator[T], fair_s: Callable[[T], float], taken_s: Sequence[float] = ()
    ) -> Iterator[T]:
        free_s, counted = 1.0, 0
        while True:
            began = time.monotonic()
            one = next(found, None)
            free_s += sum(taken_s[counted:]) + (0.0 if one is None else fair_s(one))
            self._waited(time.monotonic() - began, free_s)
            if one is None:
                return
            free_s, counted = 0.0, len(taken_s)
            yield one

    def _waited(self, took_s: float, free_s: float) -> None:
        self._behind_s = max(0.0, self._behind_s + took_s - free_s)
        if self._behind_s > self._limit_s:
            self._behind_s = 0.0  # what was moved can still be noted there
            raise RemoteError(
                f"{self.url} is so slow that this command waited {self._limit_s:g} s longer than for 4 "
                "objects or 1 MiB a second; check the network, or allow more time (--timeout)"
            )


def _fair_s(size_bytes: int) -> float:
    return 0.25 + size_bytes / (1 << 20)


def missing(libraries: str, url: str) -> UsageError:
    return UsageError(f"{public(url)} needs other libraries; install them with: pip install {libraries}")


def public(url: str) -> str:
    """A URL for people: without user and password, whichever of its parts has an at sign."""
    return printable(_CREDENTIALS.sub(r"\1", url))


def require_object_name(name: str) -> str:
    """Return the name; raises RemoteError if it must not be requested from a store."""
    if not _NAME.fullmatch(name) or len(name) > 512:
        raise RemoteError(f"{name[:80]!r} is not a name of an object in a store; remove it from the store")
    return name


def is_removable(name: str) -> bool:
    """Whether a name is one that gpucache gives to an object, so that it may remove that object."""
    return bool(_REMOVABLE.fullmatch(name))


def require_removable(name: str) -> str:
    """Return the name; raises RemoteError unless gpucache gives such names and so may remove the object."""
    if not is_removable(name):
        raise RemoteError(f"{name[:80]!r} is not a name that gpucache gives; remove it by hand")
    return name


def bounded(found: Iterable[Listed], prefix: str, expected: int, url: str) -> Iterator[Listed]:
    """A listing; raises RemoteError if it has more objects than a store may have."""
    most = expected + (_MOST_SMALL if prefix in ("catalogues/", "marks/") else MOST_OBJECTS)
    for count, one in enumerate(found):
        if count == most:
            place = prefix or "/"
            raise RemoteError(
                f"{url} lists more than {most} objects in {place}; check its address, or name another store"
            )
        yield one


def in_parallel(
    call: Callable[[T], R],
    items: Iterable[T],
    workers: int = AT_ONCE,
    weight: Callable[[T], int] = lambda _: 0,
) -> Iterator[R]:
    """The results of a call for each item as they come, in any order, from a few threads.

    No more items are taken than there are threads, and by their weights those under way have at most
    ``IN_FLIGHT_BYTES``. The first error ends it, once running calls are done. The end of the process waits
    for none of them: a request may hang.
    """
    todo: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
    done: SimpleQueue[tuple[int, list[R], BaseException | None]] = SimpleQueue()
    threads = running = total = 0

    def ended() -> R:
        nonlocal running, total
        size, results, error = done.get()
        running, total = running - 1, total - size
        if error is not None:
            raise error
        return results.pop()

    try:
        for item in items:
            size = weight(item)
            while running and total + size > IN_FLIGHT_BYTES:
                yield ended()
            if running == threads:
                Thread(target=_work, args=(call, todo, done), name="gpucache-remote", daemon=True).start()
                threads += 1
            todo.put((size, item))
            running, total = running + 1, total + size
            del item  # it may be large, and the caller takes its time
            if running >= workers:
                yield ended()
        while running:
            yield ended()
    finally:
        for _ in range(running):
            done.get()
        for _ in range(threads):
            todo.put(None)


def _work(
    call: Callable[[T], R],
    todo: "SimpleQueue[tuple[int, T] | None]",
    done: "SimpleQueue[tuple[int, list[R], BaseException | None]]",
) -> None:
    """In a thread: put the result or the error of each item."""
    while (item := todo.get()) is not None:
        results, failed = list[R](), None
        try:
            results.append(call(item[1]))
        except BaseException as error:
            failed = error
        size, item = item[0], None
        done.put((size, results, failed))
        del results


def read_sized(store: Objects, sizes: Mapping[str, int]) -> Iterator[tuple[str, bytes | None]]:
    """Some objects, each bounded by a size, as they arrive; None for one that is missing or larger.

    For any other bytes in a store, it takes not much more memory than ``IN_FLIGHT_BYTES``.
    """
    small = [(name, size) for name, size in sizes.items() if size <= _SMALL_BYTES]
    large = sorted((pair for pair in sizes.items() if pair[1] > _SMALL_BYTES), key=lambda pair: pair[1])
    groups = [(small, _SMALL_BYTES)] if small else []
    while large:
        count = max(1, IN_FLIGHT_BYTES // large[-1][1])
        groups.append((large[-count:], large[-1][1]))
        del large[-count:]
    for group, limit in groups:
        for name, data in store.read([name for name, _ in group], limit):
            yield name, data if data is None or len(data) <= sizes[name] else None


def batches(
    items: Iterable[T], most: int, weight: Callable[[T], int] = lambda _: 0, most_bytes: int = BATCH_BYTES
) -> Iterator[Sequence[T]]:
    """The items in groups of at most ``most``, and of at most so many bytes by their weights unless one item
    alone has more."""
    group: list[T] = []
    total = 0
    for item in items:
        size = weight(item)
        if group and (len(group) == most or total + size > most_bytes):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group
