"""SHA-256 of bytes and of framed texts. Pure, no I/O; a hit under an opaque key imports no more of keys.

A key is SHA-256 over a sequence of frames, each an 8-byte little-endian length and the bytes it
counts: first the schema, then label and value of every field in order. Framing prevents bytes from
moving between fields.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module

SCHEMA = "gpucache key 1"
_LITTLE = 16 << 10
"""Below this size Python's own SHA-256 ends before OpenSSL's, which is several times as fast, is loaded."""
_OWN_SHA256 = "_sha2" if sys.version_info >= (3, 12) else "_sha256"


def digest(data: bytes) -> str:
    if "hashlib" not in sys.modules and len(data) < _LITTLE:
        try:
            return str(import_module(_OWN_SHA256).sha256(data).hexdigest())
        except ImportError:
            pass  # another Python
    from hashlib import sha256

    return sha256(data).hexdigest()


def key_of(fields: Iterable[tuple[str, str]]) -> str:
    """The key of key fields, as lower-case hex."""
    return digest(_framed((SCHEMA,)) + b"".join(map(_framed, fields)))


@lru_cache(maxsize=4096)
def _framed(texts: tuple[str, ...]) -> bytes:
    """Texts with their lengths; cached, as programs share most fields."""
    parts = [
        text.encode("utf-8", "surrogatepass") for text in texts
    ]  # different texts have different encodings
    return b"".join([len(part).to_bytes(8, "little") + part for part in parts])
