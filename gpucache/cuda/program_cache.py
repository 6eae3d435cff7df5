"""``gpucache.cuda.ProgramCache``: our root as cache of ``cuda.core.Program.compile``. Loads cuda.core.

A hit is C's; what only others need is imported by them.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cuda.core import ObjectCode
from cuda.core.utils import ProgramCacheResource

from gpucache.library import rows

if TYPE_CHECKING:
    from gpucache.engine.stores import Stores
    from gpucache.library.opaque import Owner
    from gpucache.model import CacheKey, KeyField
    from gpucache.store.interface import ScannedEntry

NAMESPACE = "cuda.core program cache"
_COMPILERS = ("libnvrtc", "libnvrtc-builtins", "libnvJitLink", "libnvvm")


class ProgramCache(ProgramCacheResource):  # type: ignore[misc] # cuda.core publishes no types
    """A cache for ``cuda.core.Program.compile(cache=...)``, kept in gpucache's root.

    cuda.core hands over 32 opaque bytes, so these entries have a separate namespace and can only be reported
    as ``opaque-key``; they are checked and bounded like all others. Prefer ``compile_program``: it keys
    headers and keeps the lowered names of templates.

    A damaged entry is a miss. Storing never fails because of the cache: an entry that cannot be stored is
    dropped, and a line is logged.
    """

    def __init__(self, stores: "Stores | None" = None) -> None:
        self._given = stores

    @property
    def _stores(self) -> "Stores":
        from gpucache.library import process

        return process.stores() if self._given is None else self._given

    def __getitem__(self, key: bytes | str) -> bytes:
        payload = rows.opaque_hit(NAMESPACE, _digits(key), _COMPILERS) if self._given is None else None
        if payload is not None:
            return payload
        from gpucache.library import opaque

        found = opaque.find(self._stores, _owner(), _key(key))
        if found is None:
            raise KeyError(key)
        return found.payload

    def __setitem__(self, key: bytes | str, value: bytes | bytearray | memoryview | ObjectCode) -> None:
        from gpucache.library import opaque

        opaque.keep(self._stores, _owner(), opaque.binary(_fields(key), NAMESPACE, _payload(value)))

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
        if self._stores.target is not None:
            list(self._stores.target.remove_together(self._own(), "cleared by its program"))

    def _own(self) -> "Iterator[ScannedEntry]":
        from gpucache.errors import CacheUnusableError

        if self._stores.user is not None:
            with suppress(CacheUnusableError):  # nothing can be said of a root that cannot be listed
                for scanned in self._stores.user.scan():
                    if scanned.head is not None and scanned.head.program == NAMESPACE:
                        yield scanned


def _digits(key: bytes | str) -> str:
    if not isinstance(key, str | bytes | bytearray):
        raise TypeError(f"cache keys must be bytes or str, got {type(key).__name__}")
    return (key.encode() if isinstance(key, str) else bytes(key)).hex()


def _owner() -> "Owner":
    from gpucache.library.opaque import Owner

    untold = "cuda.core gives no details of it; gpucache.cuda.compile_program can say why"
    return Owner(NAMESPACE, "cuda.core", untold, _COMPILERS)


def _fields(key: bytes | str) -> "tuple[KeyField, ...]":
    from gpucache.library import opaque

    return opaque.key_fields(_owner(), _digits(key))


def _key(key: bytes | str) -> "CacheKey":
    from gpucache.keys import cache_key

    return cache_key(_fields(key))


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, ObjectCode):
        code = value.code
        if not isinstance(code, str):
            return bytes(code)
        with open(code, "rb") as file:  # noqa: PTH123 - pathlib takes as long as a hit
            return file.read()
    raise TypeError(f"cache values must be bytes-like or ObjectCode, got {type(value).__name__}")
