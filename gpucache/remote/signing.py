"""The keys by which records are signed and believed: Ed25519, as RFC 8032 has it.

Owns the two files of a pair, the variables' texts and the check of a signature. A public key is a line
``NAME:BASE64`` of 32 bytes, as Nix writes it, for ``GPUCACHE_TRUSTED_KEYS``. The secret key has 64 bytes, its
own and the public ones, in a file for its owner alone: so neither can be mistaken for the other. Must not
know the signed content.
"""

import os
import re
import stat
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.errors import UsageError
from gpucache.host import os_errors
from gpucache.settings import own_key_place

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

UNSIGNED = ""
"""The signer of a record without a signature."""
_KEY_BYTES = 32
_MOST_BYTES = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_NOT_SECRET = (
    "{} is not a secret key; make one with 'gpucache key FILE', which writes the secret key to FILE and the "
    "public one to FILE.pub"
)
UNSIGNED_SENDING = (
    "entries are signed before they are sent; make a key with 'gpucache key FILE', and name it by "
    "GPUCACHE_SIGNING_KEY or push --key"
)
"""The sentence of a machine without a key that sends to a store other than a directory."""
_NEEDED = "signatures need a library; install it with: pip install cryptography"


class PublicKey(NamedTuple):
    """A key whose signatures can be checked."""

    name: str
    raw: bytes

    @property
    def id(self) -> str:
        """Its name in records: the first 16 hex digits of its SHA-256."""
        return sha256(self.raw).hexdigest()[:16]

    @property
    def text(self) -> str:
        return f"{self.name}:{b64encode(self.raw).decode()}"


class SigningKey(NamedTuple):
    """A secret key."""

    public: PublicKey
    secret: "Ed25519PrivateKey"

    def sign(self, data: bytes) -> str:
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
        try:
            Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, data)
        except InvalidSignature:
            return False
        return True


def new_key(name: str) -> SigningKey:
    """A key that no file has."""
    secret = _secret_class().generate()
    return SigningKey(PublicKey(name, secret.public_key().public_bytes_raw()), secret)


def make_pair(path: Path) -> PublicKey:
    """Write a new pair: the secret key at a path with mode 0600, the public one next to it as ``PATH.pub``.

    Nobody sees half of a file. Raises UsageError if one exists or cannot be written; then neither is left.
    """
    name = re.sub(r"[^A-Za-z0-9._@-]", "-", path.stem)[:100]
    public, secret = new_key(name if _NAME.fullmatch(name) else "gpucache")
    both = secret.private_bytes_raw() + public.raw
    made: list[Path] = []
    partial = path.with_name(f".{path.name}-{os.urandom(16).hex()}")
    try:
        for place, raw, mode in (
            (path, both, 0o600),
            (path.with_name(f"{path.name}.pub"), public.raw, 0o644),
        ):
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(f"{public.name}:{b64encode(raw).decode()}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            os.link(partial, place)
            made.append(place)
            partial.unlink()
    except OSError as error:
        for one in (partial, *made):
            one.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise UsageError(
                f"{error.filename2} exists; name another file, or add --public to print the key in {path}"
            ) from None
        raise os_errors.unwritable(path, error, "name another file") from None
    return public


def load_signing_key(path: Path) -> SigningKey:
    """A secret key; raises UsageError for a file that is not one, or that is not this user's alone."""
    secret_class = _secret_class()
    name, raw = _secret(path)
    secret = secret_class.from_private_bytes(raw[:_KEY_BYTES])
    public = PublicKey(name, secret.public_key().public_bytes_raw())
    if public.raw != raw[_KEY_BYTES:]:
        raise UsageError(_NOT_SECRET.format(path))
    return SigningKey(public, secret)


def signing_key(file: Path | None, *, make: bool) -> tuple[SigningKey, bool]:
    """This user's key: the one that a variable or an option names, or the own one, with True if it was made
    just now. Raises UsageError if there is none and none may be made."""
    place = _named(file)
    made = False
    if file is None and not (place and place.exists()):
        if not (place and make):
            raise UsageError(UNSIGNED_SENDING)
        place.parent.mkdir(0o700, parents=True, exist_ok=True)
        try:
            made = bool(make_pair(place))
        except UsageError:
            if not place.exists():  # else another process made it at the same time
                raise
    return load_signing_key(place or Path()), made


def read_trusted(text: str, own: Path | None = None) -> TrustedKeys:
    """The keys of ``GPUCACHE_TRUSTED_KEYS``, ``NAME:BASE64`` or files of such lines, separated by spaces; and
    this user's own, from the file that a variable names or the usual one, if it can be read.

    Raises UsageError for any other word, a relative path, and a file that others can write.
    """
    found: dict[str, PublicKey] = {}
    for word in text.split():
        for line in _lines(word):
            try:
                key = PublicKey(*_parsed(line))
            except ValueError:
                shown = word.partition(":")[0][:80]  # a secret key that was put there is not printed
                raise UsageError(
                    f"GPUCACHE_TRUSTED_KEYS: {shown!r} is not a public key; give NAME:BASE64 or the .pub "
                    "file that 'gpucache key FILE' wrote"
                ) from None
            found[key.id] = key
    with suppress(UsageError):  # a push gives the reason
        if place := _named(own):
            name, raw = _secret(place)
            key = PublicKey(name, raw[_KEY_BYTES:])
            found[key.id] = key
    return TrustedKeys(found)


def _named(file: Path | None) -> Path | None:
    if file is not None and not file.is_absolute():
        raise UsageError(
            f"GPUCACHE_SIGNING_KEY: {file} depends on the current directory; write {file.absolute()}"
        )
    return file or own_key_place()


def _secret(path: Path) -> tuple[str, bytes]:
    """The name and both halves of a secret key in a file of this user alone; raises UsageError."""
    data, status = _contents(path)
    try:
        found = _parsed(data, 2 * _KEY_BYTES)
    except ValueError:
        raise UsageError(_NOT_SECRET.format(path)) from None
    _require_owner(path, status, 0o077, "may read the secret key {0}; run: chmod 600 {0}")
    return found


def _contents(path: Path) -> tuple[str, os.stat_result]:
    """The text of a file and its status; raises UsageError."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(fd, "rb") as file:
            return file.read(_MOST_BYTES).decode("ascii", "replace"), os.fstat(fd)
    except OSError as error:
        raise os_errors.unreadable(f"the key {path}", error, "make one with 'gpucache key FILE'") from None


def _require_owner(path: Path, status: os.stat_result, others: int, problem: str) -> None:
    """Raise UsageError for a file that is not this user's or root's, or on which others have some of the
    permissions."""
    if sys.platform != "win32" and status.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"the key {path} belongs to another user; copy it to a file of your own")
    if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & others:
        raise UsageError(f"other users {problem.format(path)}")


def _lines(word: str) -> list[str]:
    """The lines of keys in a word: the word itself, or the lines of the file that it names."""
    with suppress(ValueError):
        _parsed(word)
        return [word]
    path = Path(word)
    if not (path.suffix == ".pub" or os.path.lexists(path)):
        return [word]
    if not os.path.lexists(path):
        raise UsageError(f"GPUCACHE_TRUSTED_KEYS: {word} does not exist; copy it from where the key was made")
    if not path.is_absolute():
        raise UsageError(
            f"GPUCACHE_TRUSTED_KEYS: {word} depends on the current directory; write {path.absolute()}"
        )
    text, status = _contents(path)
    _require_owner(path, status, 0o022, "can change the trusted keys in {0}; run: chmod go-w {0}")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")] or [word]


def _parsed(text: str, size_bytes: int = _KEY_BYTES) -> tuple[str, bytes]:
    """Name and bytes of a key's line; raises ValueError."""
    name, colon, digits = text.strip().partition(":")
    raw = b64decode(digits, validate=True)
    if not (colon and _NAME.fullmatch(name)) or len(raw) != size_bytes:
        raise ValueError("it is not a key")
    return name, raw


def _secret_class() -> "type[Ed25519PrivateKey]":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise UsageError(_NEEDED) from None
    return Ed25519PrivateKey
