"""Hits in C: one call answers a build from the rows of all roots, before anything else of ours is imported.

Owns which roots are asked without the other modules, and this process's count of hits and misses. Only what
needs no explanation is decided here: without the C library, or where the environment says more than where the
roots are, ``process`` decides.
"""

import atexit
import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpucache.framing import key_of
from gpucache.host.environment import environment
from gpucache.native.locate import find

if TYPE_CHECKING:
    from logging import Logger

    from gpucache.engine.stores import Stores

BUILD, COMPILE = 1, 16
"""Kinds of questions, as ``serve.wire`` has them."""
_PLACES = frozenset({"GPUCACHE_DIR", "GPUCACHE_SYSTEM_DIRS"})
_FLAGS = frozenset({"GPUCACHE_READ_ONLY", "GPUCACHE_REQUIRE", "GPUCACHE_LEARN"})
_SIZES = frozenset({"GPUCACHE_MAX_SIZE", "GPUCACHE_MEMORY_BYTES"})
_AFTER_MISSES = frozenset(
    {
        *("GPUCACHE_REMOTE", "GPUCACHE_SIGNING_KEY", "GPUCACHE_TRUSTED_KEYS"),
        *("GPUCACHE_RUN_SOCKET", "GPUCACHE_RUN_ROOTS", "GPUCACHE_RUN_FILTERS", "GPUCACHE_RUN_TUNABLES"),
    }
)
ABI = 1
"""The version of the signatures below: a library with another one is not called."""
_MACHINE = "/etc/gpucache.toml"
"""As ``settings`` has it."""
_INFO = 20
_USED_CAP = 1 << 12


class _Bytes(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Reply(ctypes.Structure):
    """``struct wire_reply`` of ``native/wire.h``."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("body", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("next", ctypes.c_size_t),
        ("note", _Bytes),
        ("view", _Bytes),
        ("environment", ctypes.c_uint64),
        ("looked", ctypes.c_uint64),
    )


class Row(NamedTuple):
    """A hit."""

    fields: tuple[bytes, ...]
    """The fields of the answer, as ``serve`` documents them for each kind."""
    note: bytes
    """The compile time, key, target and program's name of the entry."""


class Library:
    """The functions of ``native/library.c``."""

    def __init__(self, path: str) -> None:
        """Raises OSError if it does not load, AttributeError if it has other signatures."""
        library = ctypes.CDLL(path)
        if library.gpucache_abi() != ABI << 12 | ctypes.sizeof(_Reply):  # which C fills in
            raise AttributeError("gpucache_abi")
        text, size = ctypes.c_char_p, ctypes.c_size_t
        library.gpucache_begin.restype = ctypes.c_uint64
        library.gpucache_driver_of.argtypes, library.gpucache_driver_of.restype = (ctypes.c_void_p,), text
        library.gpucache_file_of.argtypes, library.gpucache_file_of.restype = (text,), text
        self._answer, self._done = library.gpucache_answer, library.gpucache_done
        reply = ctypes.POINTER(_Reply)
        asked = (ctypes.c_uint, text, text, size)
        self._answer.argtypes = (text, ctypes.c_int, *asked, reply)
        self._done.argtypes, self._done.restype = (reply,), None
        library.gpucache_holds.argtypes = (*asked, text, size)
        library.gpucache_entry.argtypes = (text, ctypes.c_int, text, reply)
        library.gpucache_builds.argtypes = (text, size, text, size)
        library.gpucache_count.argtypes = (text, text, ctypes.c_ulonglong, ctypes.c_ulonglong)
        self._library = library
        self.begun_ns = 0
        """When this process began, after ``begin``: every compiler was loaded later."""

    def begin(self) -> "Library":
        """Believe no file of a compiler that has changed since this process began."""
        self.begun_ns = self._library.gpucache_begin()
        return self

    def answer(self, roots: bytes, kind: int, question: Sequence[bytes], *, writes: bool) -> Row | None:
        """The answer of the first row, in some roots, that has one."""
        reply = _Reply()
        if not self._answer(roots, writes, kind, *_given(question), reply):
            return None
        return self._taken(reply)

    def _taken(self, reply: _Reply) -> Row | None:
        """The fields of a reply; None without the memory for them."""
        try:
            body = ctypes.string_at(reply.body + reply.next, reply.size - reply.next)
            note = ctypes.string_at(reply.note.at, reply.note.size) if reply.note.at else b""
            fields, at = [], 0
            while at < len(body):
                end = at + 4 + int.from_bytes(body[at : at + 4], "little")
                fields.append(body[at + 4 : end])
                at = end
        except MemoryError:
            return None
        finally:
            self._done(reply)
        return Row(tuple(fields), note)

    def entry(self, roots: bytes, key: bytes, *, writes: bool) -> tuple[bytes, ...]:
        """Head and payload of the entry of a key in the first root that has one; empty if it is not sound."""
        reply = _Reply()
        row = self._taken(reply) if self._library.gpucache_entry(roots, writes, key, reply) else None
        return row.fields if row is not None else ()

    def builds(self, names: Sequence[str]) -> list[str]:
        """The build id of each library of a compiler by the beginning of its name, empty if it is not there.

        None at all if that is not for C to say: see ``gpucache_builds``.
        """
        text, ids = "\0".join([*names, ""]).encode(), ctypes.create_string_buffer(2048)
        known = self._library.gpucache_builds(text, len(text), ids, len(ids))
        return ids.value.decode().split("\n")[:-1] if known else []

    def holds(self, kind: int, question: Sequence[bytes], conditions: bytes) -> bool:
        """Whether this process meets conditions, as a record has them."""
        return bool(self._library.gpucache_holds(kind, *_given(question), conditions, len(conditions)))

    def driver_of(self, handle: int) -> bytes:
        """The file of the driver of an OpenCL platform or device; empty if it is not known."""
        found: bytes | None = self._library.gpucache_driver_of(handle)
        return found or b""

    def file_of(self, name: bytes) -> bytes:
        """The file of a library that is loaded under a name; empty if none is."""
        found: bytes | None = self._library.gpucache_file_of(name)
        return found or b""

    def count(self, root: bytes, command: bytes, hits: int, saved_ns: int) -> bool:
        """Append hits to the journal of a root; returns whether that was possible."""
        return bool(self._library.gpucache_count(root, command, hits, saved_ns))


@cache
def library() -> Library | None:
    """The C library; None where it is not built."""
    path, problem = find("library")
    try:
        return None if problem else Library(path).begin()
    except AttributeError:
        from gpucache.library.process import say_once

        say_once(f"{path} was built for another version of gpucache; run python -m gpucache.native.build")
    except OSError:
        return None
    return None


def answer(kind: int, question: Sequence[bytes]) -> Row | None:
    """The hit of a build in the first root that has one. Raises nothing."""
    asked = library()
    roots, writes = _roots(environment())
    return asked.answer(roots, kind, question, writes=writes) if asked is not None and roots else None


def opaque_hit(namespace: str, key: str, compilers: Sequence[str]) -> bytes | None:
    """The payload under an owner's key, counted; None where ``opaque.find`` has to look."""
    asked = library()
    roots, writes = _roots(environment())
    builds = asked.builds(compilers) if asked is not None and roots else []
    if asked is None or not builds:
        return None
    pairs = [(f"{name} build", build) for name, build in zip(compilers, builds, strict=True) if build]
    digits = key_of([("namespace", namespace), ("opaque key", key), *pairs])
    found = asked.entry(roots, bytes.fromhex(digits), writes=writes)
    if not found:
        return None
    head, payload = found
    compile_ns = head.partition(b'"compile_ns":')[2].partition(b",")[0]
    if not compile_ns.isdigit() or len(compile_ns) > 19:
        return None
    _count(digits, int(compile_ns), lambda: _target_and_name(head))
    return payload


def _target_and_name(head: bytes) -> tuple[str, str]:
    import json

    read = json.loads(head)
    return read["target"], read["program"]


def variables(environ: Mapping[str, str]) -> bytes:
    global _variables
    kept = _variables  # which another thread may replace
    if kept[0] is not environ:
        text = "".join(f"{name}={value}\0" for name, value in environ.items())
        kept = _variables = environ, os.fsencode(text)
    return kept[1]


_variables: tuple[Mapping[str, str] | None, bytes] = (None, b"")


used: dict[str, None] = {}
"""The keys of the entries that rows answered with, the latest last; no ``MemoryStore`` has these entries."""


def tell(row: Row) -> None:
    compile_ns, digits, told = row.note.split(b"\t", 2)
    described = lambda: (part.decode("unicode_escape") for part in told.split(b"\t"))  # noqa: E731 - few ask
    _count(digits.decode(), int(compile_ns), described)


def _count(key: str, compile_ns: int, described: Callable[[], Iterable[str]]) -> None:
    """Count a hit, and log it with its target and its program's name."""
    COUNTER.count(None, hit=True, saved_ns=compile_ns)
    with suppress(KeyError, RuntimeError, StopIteration):  # other threads add and drop, too
        used[key] = None
        while len(used) > _USED_CAP:
            del used[next(iter(used))]
    # Without the module there is no listener.
    if "logging" in sys.modules and _logger().isEnabledFor(_INFO):
        from gpucache.library.process import log_hit

        target, name = described()
        places = os.fsdecode(_roots(environment())[0]).split(":")
        entry = os.path.join("v1", "entries", key[:2], f"{key}.gpc")  # noqa: PTH118
        store = next((one for one in places if os.path.lexists(os.path.join(one, entry))), "a root")  # noqa: PTH118
        log_hit(name, target, key[:12], store)


@cache
def _logger() -> "Logger":
    from logging import getLogger

    return getLogger("gpucache")


def _roots(environ: Mapping[str, str]) -> tuple[bytes, bool]:
    """The roots that are asked, the user's own first, and whether the use of an entry is recorded there."""
    global _named
    process: Any = sys.modules.get("gpucache.library.process")
    if process is None:
        if _named[0] is not environ:
            writes = environ.get("GPUCACHE_READ_ONLY", "0") in ("", "0")
            _named = environ, (_of(environ), writes)
        if _named[1][0]:
            return _named[1]
        from gpucache.library import process
    stores: Stores = process.stores()
    if _named[0] is not stores:
        places = () if stores.disabled else [os.fsencode(store.root) for store in stores.on_disk()]
        roots = b"" if any(b":" in place for place in places) else b":".join(places)
        _named = stores, (roots, not stores.read_only)
    return _named[1]


_named: tuple[object, tuple[bytes, bool]] = (None, (b"", False))
"""The roots of an environment or of stores. Replaced as a whole, by any thread."""


def _of(environ: Mapping[str, str]) -> bytes:
    """The roots as ``settings`` finds them; empty if other settings matter or a warning is due."""
    for name, value in environ.items():
        known = not name.startswith("GPUCACHE_") or name in _PLACES or name in _AFTER_MISSES
        if (
            not known
            and not (name in _FLAGS and value in ("", "0", "1"))
            and not (name in _SIZES and value.isdecimal())
        ):
            return b""
    caches, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    own = environ.get("GPUCACHE_DIR", "")
    if not own and (not (caches or home).startswith("/") or " " in caches or (not caches and home == "/")):
        return b""
    places = _MACHINE, f"{environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/gpucache/settings.toml"
    if not home or any(map(os.path.lexists, places)):
        return b""
    own = own or f"{caches or f'{home}/.cache'}/gpucache"
    roots = [own, *filter(None, environ.get("GPUCACHE_SYSTEM_DIRS", "").split(":"))]
    if ":" in own or sys.platform != "linux":
        return b""
    return b":".join(os.fsencode(os.path.join(os.getcwd(), place)) for place in roots)  # noqa: PTH109, PTH118


def _given(fields: Sequence[bytes]) -> tuple[bytes, bytes, int]:
    """Fields as ``native/library.c`` takes them: one after another, the size of each, and their number."""
    return b"".join(fields), struct.pack(f"{len(fields)}N", *map(len, fields)), len(fields)


class Counter:
    """Hits and misses of this process, written to the journal at its end; a forked child starts at 0."""

    def __init__(self) -> None:
        self._registered = False  # stays true in a forked child, which inherits the exit functions
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()  # a thread that the fork did not copy may have the old one locked
        self._hits = self._misses = self._saved_ns = 0
        self._stores: Stores | None = None

    def count(self, stores: "Stores | None", *, hit: bool, saved_ns: int = 0) -> None:
        """Count one, in given stores, or those of this process."""
        with self._lock:
            if not self._registered:
                self._registered = True
                atexit.register(self.write)
            self._stores = stores or self._stores
            self._hits += hit
            self._misses += not hit
            self._saved_ns += saved_ns

    def write(self) -> None:
        """Write the numbers down, for the summary of ``gpucache run`` as well, which does not see them."""
        counted = self._hits or self._misses
        if sys.platform == "linux" and counted and (run := os.environ.get("GPUCACHE_RUN_SOCKET")):
            with suppress(OSError):
                notes = os.path.join(os.path.dirname(run), "notes")  # noqa: PTH118, PTH120
                fd = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW)
                with open(fd, "w") as file:  # noqa: PTH123
                    file.write(f"within {self._hits}\nmissed {self._misses}\n")
        if not counted or (self._stores is None and self._is_written()):
            return
        from gpucache.library.process import note

        with suppress(OSError):  # a root that cannot be looked at
            note(self._stores, self._hits, self._misses, self._saved_ns)

    def _is_written(self) -> bool:
        """Whether the counts need no further writing: C wrote them, or there is no cache to write to."""
        if "gpucache.library.process" in sys.modules:
            return False
        places, writes = _roots(environment())
        own, asked = places.partition(b":")[0], library()
        if not writes or not os.path.isdir(own):  # noqa: PTH112 - counting alone makes no cache
            return True
        command = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"  # noqa: PTH119
        return asked is not None and asked.count(own, os.fsencode(command), self._hits, self._saved_ns)


COUNTER = Counter()
