"""``gpucache.cuda.ProgramCache``: our root as cache of ``cuda.core.Program.compile``. Loads cuda.core."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuda.core import ObjectCode
from cuda.core.utils import ProgramCacheResource

from gpucache.engine.stores import Stores
from gpucache.errors import CacheUnusableError
from gpucache.keys import cache_key
from gpucache.library import opaque, process
from gpucache.model import CacheKey, KeyField
from gpucache.store.interface import ScannedEntry

NAMESPACE = "cuda.core program cache"
OWNER = opaque.Owner(
    NAMESPACE,
    "cuda.core",
    "cuda.core gives no details of it; gpucache.cuda.compile_program can say why",
    ("libnvrtc", "libnvrtc-builtins", "libnvJitLink", "libnvvm"),
)


class ProgramCache(ProgramCacheResource):  # type: ignore[misc] # cuda.core publishes no types
    """A cache for ``cuda.core.Program.compile(cache=...)``, kept in gpucache's root.

    cuda.core hands over 32 opaque bytes, so these entries have a separate namespace and can only be reported
    as ``opaque-key``; they are checked and bounded like all others. Prefer ``compile_program``: it keys
    headers and keeps the lowered names of templates.

    A damaged entry is a miss. Storing never fails because of the cache: an entry that cannot be stored is
    dropped, and a line is logged.
    """

    def __init__(self, stores: Stores | None = None) -> None:
        self._stores = stores if stores is not None else process.stores()

    def __getitem__(self, key: bytes | str) -> bytes:
        found = opaque.find(self._stores, OWNER, _key(key))
        if found is None:
            raise KeyError(key)
        return found.payload

    def __setitem__(self, key: bytes | str, value: bytes | bytearray | memoryview | ObjectCode) -> None:
        opaque.keep(self._stores, OWNER, opaque.binary(_fields(key), NAMESPACE, _payload(value)))

    def __delitem__(self, key: bytes | str) -> None:
        wanted = _key(key)
        for scanned in self._own():
            if scanned.key == wanted and self._stores.target is not None:
                self._stores.target.remove(scanned, "deleted by its program")
                return
        raise KeyError(key)

    def __len__(self) -> int:
        return sum(1 for _ in self._own())

    def clear(self) -> None:
        """Remove every entry of this namespace."""
        for scanned in self._own():
            if self._stores.target is not None:
                self._stores.target.remove(scanned, "cleared by its program")

    def _own(self) -> Iterator[ScannedEntry]:
        if self._stores.user is not None:
            with suppress(CacheUnusableError):  # nothing can be said of a root that cannot be listed
                for scanned in self._stores.user.scan():
                    if scanned.head is not None and scanned.head.program == NAMESPACE:
                        yield scanned


def _fields(key: bytes | str) -> tuple[KeyField, ...]:
    if not isinstance(key, str | bytes | bytearray):
        raise TypeError(f"cache keys must be bytes or str, got {type(key).__name__}")
    return opaque.key_fields(OWNER, (key.encode() if isinstance(key, str) else bytes(key)).hex())


def _key(key: bytes | str) -> CacheKey:
    return cache_key(_fields(key))


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, ObjectCode):
        code = value.code
        return Path(code).read_bytes() if isinstance(code, str) else bytes(code)
    raise TypeError(f"cache values must be bytes-like or ObjectCode, got {type(value).__name__}")
