"""``gpucache.cuda.ProgramCache``: our root as cache of ``cuda.core.Program.compile``. Loads cuda.core."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuda.core import ObjectCode
from cuda.core.utils import ProgramCacheResource

from gpucache import __version__
from gpucache.engine.store_layers import Layers
from gpucache.errors import CacheMissError, CacheUnusableError
from gpucache.keys import cache_key, digest
from gpucache.library import process
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead, KeyField
from gpucache.store.interface import Damaged, Event, Found, ScannedEntry

NAMESPACE = "cuda.core program cache"


class ProgramCache(ProgramCacheResource):  # type: ignore[misc] # cuda.core publishes no types
    """A cache for ``cuda.core.Program.compile(cache=...)``, kept in gpucache's root.

    cuda.core hands over 32 opaque bytes, so these entries have a separate namespace and can only be reported
    as ``opaque-key``; they are checked and bounded like all others. Prefer ``compile_program``: it keys
    headers and keeps the lowered names of templates.

    A damaged entry is a miss. Storing never fails because of the cache: an entry that cannot be stored is
    dropped, and a line is logged.
    """

    def __init__(self, layers: Layers | None = None) -> None:
        self._layers = layers if layers is not None else process.layers()

    def __getitem__(self, key: bytes | str) -> bytes:
        wanted = _key(key)
        if not self._layers.disabled:
            for store in self._layers.on_disk():
                answer = store.get(wanted)
                if isinstance(answer, Found):
                    return answer.payload
                if isinstance(answer, Damaged):
                    process.say_once(f"an entry of cuda.core was {answer.damage}: {answer.detail}")
            if self._layers.remote is not None:
                from gpucache.engine.elsewhere import fetch

                fetched = fetch(self._layers, wanted)
                if fetched is not None:
                    return fetched.payload
        if self._layers.require:
            raise CacheMissError(
                "a program of cuda.core is not in the cache, and GPUCACHE_REQUIRE is set: opaque-key: "
                "cuda.core gives no details of it; gpucache.cuda.compile_program can say why"
            )
        raise KeyError(key)

    def __setitem__(self, key: bytes | str, value: bytes | bytearray | memoryview | ObjectCode) -> None:
        entry = _entry(key, _payload(value))
        store = self._layers.target
        if store is None:
            return
        try:
            store.publish(entry)
        except (OSError, CacheUnusableError) as error:
            from gpucache.engine.lookup import not_kept

            process.say_once(f"programs of cuda.core are not kept: {not_kept(store.root, error)}")
            return
        store.record(NAMESPACE, Event(entry.head.created_ns, "built", str(entry.key), entry.head.target))
        if self._layers.remote is not None:
            self._layers.remote().send(entry)
        if self._layers.trim is not None:
            with suppress(OSError, CacheUnusableError):
                self._layers.trim()

    def __delitem__(self, key: bytes | str) -> None:
        wanted = _key(key)
        for scanned in self._own():
            if scanned.key == wanted and self._layers.target is not None:
                self._layers.target.remove(scanned, "deleted by its program")
                return
        raise KeyError(key)

    def __len__(self) -> int:
        return sum(1 for _ in self._own())

    def clear(self) -> None:
        """Remove every entry of this namespace."""
        for scanned in self._own():
            if self._layers.target is not None:
                self._layers.target.remove(scanned, "cleared by its program")

    def _own(self) -> Iterator[ScannedEntry]:
        if self._layers.user is not None:
            with suppress(CacheUnusableError):  # nothing can be said of a root that cannot be listed
                for scanned in self._layers.user.scan():
                    if scanned.head is not None and scanned.head.program == NAMESPACE:
                        yield scanned


def _fields(key: bytes | str) -> tuple[KeyField, ...]:
    if not isinstance(key, str | bytes | bytearray):
        raise TypeError(f"cache keys must be bytes or str, got {type(key).__name__}")
    opaque = key.encode() if isinstance(key, str) else bytes(key)
    return (KeyField("namespace", NAMESPACE), KeyField("opaque key", opaque.hex()))


def _key(key: bytes | str) -> CacheKey:
    return cache_key(_fields(key))


def _entry(key: bytes | str, payload: bytes) -> Entry:
    from gpucache.payload import PayloadKind, describe  # which no hit needs

    kinds = {PayloadKind.CUBIN: "cubin", PayloadKind.PTX: "ptx", PayloadKind.LTOIR: "ltoir"}
    info = describe(payload)
    head = EntryHead(
        program=NAMESPACE,
        target=f"cuda:{info.architecture}" if info.architecture else "cuda:unknown",
        artifact_kind=kinds.get(info.kind, info.kind.value),
        created_ns=time.time_ns(),
        compile_ns=0,
        payload_sha256=digest(payload),
    )
    fields = _fields(key)
    return Entry(cache_key(fields), head, EntryDetail(fields, "", __version__), payload)


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, ObjectCode):
        code = value.code
        return Path(code).read_bytes() if isinstance(code, str) else bytes(code)
    raise TypeError(f"cache values must be bytes-like or ObjectCode, got {type(value).__name__}")
