"""The keys by which records are signed and believed: Ed25519, as RFC 8032 has it.

Owns the two files of a pair, the variables' texts and the check of a signature. A public key is a line
``NAME:BASE64`` of 32 bytes, as Nix writes it, for ``GPUCACHE_TRUSTED_KEYS``. The secret key has 64 bytes, its
own and the public ones, in a file for its owner alone: so neither can be mistaken for the other. Must not
know the signed content.
"""

import os
import re
import stat
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.errors import UsageError
from gpucache.host import os_errors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

UNSIGNED = ""
"""The signer of a record without a signature."""
_KEY_BYTES = 32
_MOST_BYTES = 64 << 10
_MOST_VERIFIED = 100_000
_verified: set[bytes] = set()
"""Digests of keys, signatures and data that were checked: a pull asks about a record several times."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_NEEDED = "signatures need a library; install it with: pip install cryptography"


class PublicKey(NamedTuple):
    """A key whose signatures can be checked."""

    name: str
    """Its name for people."""
    raw: bytes

    @property
    def id(self) -> str:
        """Its name in records: the first 16 hex digits of its SHA-256."""
        return sha256(self.raw).hexdigest()[:16]

    @property
    def text(self) -> str:
        """Its line."""
        return f"{self.name}:{b64encode(self.raw).decode()}"


class SigningKey(NamedTuple):
    """A secret key."""

    public: PublicKey
    secret: "Ed25519PrivateKey"

    def sign(self, data: bytes) -> str:
        """The signature of some bytes, in base64."""
        return b64encode(self.secret.sign(data)).decode()


class TrustedKeys(NamedTuple):
    """The keys that this machine believes, by id; a key taken out of them is revoked."""

    keys: Mapping[str, PublicKey]

    def believes(self, signer: str, data: bytes, encoded: str) -> bool:
        """Whether one of them signed some bytes; raises UsageError without the library that checks it."""
        key = self.keys.get(signer)
        try:
            signature = b64decode(encoded, validate=True)
        except ValueError:
            return False
        if key is None or len(signature) != 64:
            return False
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ImportError:
            raise UsageError(_NEEDED) from None
        seen = sha256(key.raw + signature + data).digest()
        if seen in _verified:
            return True
        try:
            Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, data)
        except InvalidSignature:
            return False
        if len(_verified) >= _MOST_VERIFIED:
            _verified.clear()
        _verified.add(seen)
        return True


def make_pair(path: Path) -> PublicKey:
    """Write a new pair: the secret key at a path with mode 0600, the public one next to it as ``PATH.pub``.

    Raises UsageError if one of the files exists or cannot be written; then neither is left.
    """
    secret_class = _secret_class()
    secret = secret_class.generate()
    public = PublicKey(_name_of(path), secret.public_key().public_bytes_raw())
    other = path.with_name(f"{path.name}.pub")
    made: list[Path] = []
    try:
        both = secret.private_bytes_raw() + public.raw
        for place, raw, mode in ((path, both, 0o600), (other, public.raw, 0o644)):
            fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(place)
            with os.fdopen(fd, "wb") as file:
                file.write(f"{public.name}:{b64encode(raw).decode()}\n".encode())
                file.flush()
                os.fsync(fd)
    except FileExistsError as error:
        _remove(made)
        raise UsageError(
            f"{error.filename} exists; name another file, or add --public to print the key in {path}"
        ) from None
    except OSError as error:
        _remove(made)
        raise os_errors.unwritable(path, error, "name another file") from None
    return public


def load_signing_key(path: Path) -> SigningKey:
    """A secret key; raises UsageError for a file that is not one or that others may read."""
    secret_class = _secret_class()
    try:
        with path.open("rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode, file.read(_MOST_BYTES)
    except OSError as error:
        raise os_errors.unreadable(f"the key {path}", error, "make one with 'gpucache key FILE'") from None
    try:
        name, raw = _parsed(data.decode("ascii"), 2 * _KEY_BYTES)
        secret = secret_class.from_private_bytes(raw[:_KEY_BYTES])
        public = PublicKey(name, secret.public_key().public_bytes_raw())
        if public.raw != raw[_KEY_BYTES:]:
            raise ValueError("its halves are of two keys")
    except ValueError:
        raise UsageError(
            f"{path} is not a secret key; make one with 'gpucache key FILE', which writes the secret key "
            "to FILE and the public one to FILE.pub"
        ) from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"other users may read the secret key {path}; run: chmod 600 {path}")
    return SigningKey(public, secret)


def read_trusted(text: str) -> TrustedKeys:
    """The keys of ``GPUCACHE_TRUSTED_KEYS``: ``NAME:BASE64`` or files of such lines, separated by spaces.

    Raises UsageError for a word that is neither.
    """
    found: dict[str, PublicKey] = {}
    for word in text.split():
        for line in _lines(word):
            try:
                key = PublicKey(*_parsed(line))
            except ValueError:
                shown = word.partition(":")[0][:80]  # a secret key that was put there is not printed
                raise UsageError(
                    f"GPUCACHE_TRUSTED_KEYS: {shown!r} is not a public key; give NAME:BASE64 or the "
                    ".pub file that 'gpucache key FILE' wrote"
                ) from None
            found[key.id] = key
    return TrustedKeys(found)


def _lines(word: str) -> list[str]:
    try:
        _parsed(word)
    except ValueError:
        pass
    else:
        return [word]
    try:
        with Path(word).open("rb") as file:
            text = file.read(_MOST_BYTES).decode("ascii", "replace")
    except (OSError, ValueError):
        return [word]
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")] or [word]


def _parsed(text: str, size_bytes: int = _KEY_BYTES) -> tuple[str, bytes]:
    """Name and bytes of a key's line; raises ValueError."""
    name, colon, digits = text.strip().partition(":")
    raw = b64decode(digits, validate=True)
    if not (colon and _NAME.fullmatch(name)) or len(raw) != size_bytes:
        raise ValueError("it is not a key")
    return name, raw


def _name_of(path: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._@-]", "-", path.stem)[:100]
    return name if _NAME.fullmatch(name) else "gpucache"


def _secret_class() -> "type[Ed25519PrivateKey]":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise UsageError(_NEEDED) from None
    return Ed25519PrivateKey


def _remove(made: list[Path]) -> None:
    for path in made:
        path.unlink(missing_ok=True)
