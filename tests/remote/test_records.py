"""Records: which are signed, which are trusted, and which every reader refuses."""

import contextlib
import json
import os
from pathlib import Path

import pytest

from gpucache.caches.portable import PortableEntry, PortableFile
from gpucache.errors import FormatError, UsageError
from gpucache.remote.records import Signed, entry_of, parse_line, record_of, signed
from gpucache.remote.signing import (
    SigningKey,
    TrustedKeys,
    load_signing_key,
    make_pair,
    read_trusted,
    signing_key,
)

_ENTRY = PortableEntry(
    "triton",
    "ab" * 32,
    (PortableFile("K/k.cubin", b"binary", 0o644), PortableFile("K/__grp__k.json", b"{}", 0o600)),
    facts=(("architecture", "sm_90"),),
    program="k",
)


@pytest.fixture(name="key")
def _key(tmp_path: Path) -> SigningKey:
    make_pair(tmp_path / "mine")
    return load_signing_key(tmp_path / "mine")


def _trusted(key: SigningKey) -> TrustedKeys:
    return read_trusted(key.public.text)


def test_a_line_comes_back_as_it_was_and_is_believed(key: SigningKey) -> None:
    """A signed record is the same after a round trip, and its entry has the files' bytes."""
    written = signed(record_of(_ENTRY), key)
    found = parse_line(written.line)
    assert found == written
    assert found.is_believed(_trusted(key))
    assert entry_of(found.record, [one.data for one in _ENTRY.files]) == _ENTRY


def test_each_changed_byte_of_a_line_is_refused_or_not_believed(key: SigningKey) -> None:
    line = signed(record_of(_ENTRY), key).line
    trusted = _trusted(key)
    for at in range(len(line) - 1):
        for change in (1, 0x20):
            other = line[:at] + bytes([line[at] ^ change]) + line[at + 1 :]
            try:
                assert not parse_line(other).is_believed(trusted)
            except FormatError:
                continue


def test_an_unknown_key_and_no_key_are_not_believed(key: SigningKey, tmp_path: Path) -> None:
    """A record signed by another key, and an unsigned one, are not trusted."""
    make_pair(tmp_path / "other")
    other = load_signing_key(tmp_path / "other")
    assert not signed(record_of(_ENTRY), other).is_believed(_trusted(key))
    assert not Signed(record_of(_ENTRY)).is_believed(_trusted(key))


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a//b", "a/./b", "C:x", "a\\b", "a\nb", "x" * 2000, "a/" * 20 + "b", ""]
)
def test_a_name_outside_of_the_cache_is_refused(name: str) -> None:
    """No record can write a file outside of the root."""
    entry = _ENTRY._replace(files=(PortableFile(name, b"", 0o644),))
    with pytest.raises(FormatError):
        parse_line(Signed(record_of(entry)).line)


@pytest.mark.parametrize(
    ("field", "value"),
    [("mode", 0o4755), ("mode", -1), ("size_bytes", 1 << 40), ("sha256", "AB" * 32), ("more", 1)],
)
def test_a_file_beyond_its_bounds_is_refused(field: str, value: object) -> None:
    """Invalid sizes, modes and digests are refused."""
    told = json.loads(Signed(record_of(_ENTRY)).line)
    told["record"]["files"][0][field] = value
    with pytest.raises(FormatError):
        parse_line(json.dumps(told, separators=(",", ":")).encode())


def test_the_digest_of_an_entry_is_that_of_its_files_alone() -> None:
    """Facts and times do not change it; a byte, a name or a mode does."""
    digest = record_of(_ENTRY).digest
    assert record_of(_ENTRY._replace(facts=(), made_ns=5, files=_ENTRY.files[::-1])).digest == digest
    for changed in (b"other", 0o755):
        first = _ENTRY.files[0]
        first = first._replace(data=changed) if isinstance(changed, bytes) else first._replace(mode=changed)
        assert record_of(_ENTRY._replace(files=(first, _ENTRY.files[1]))).digest != digest


def test_other_bytes_than_the_recorded_are_no_entry() -> None:
    """A store that returns other bytes, fewer or none is noticed."""
    record = record_of(_ENTRY)
    good = [one.data for one in _ENTRY.files]
    for wrong in ([None, *good[1:]], [b"Binary", *good[1:]], [b"", *good[1:]]):
        with pytest.raises(FormatError):
            entry_of(record, wrong)


def test_a_secret_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """The message says how to fix it; a second pair overwrites nothing."""
    make_pair(tmp_path / "mine")
    before = (tmp_path / "mine").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        make_pair(tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == before
    (tmp_path / "mine").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load_signing_key(tmp_path / "mine")


def test_trusted_keys_are_lines_or_files_of_lines(tmp_path: Path) -> None:
    """Both may be mixed; anything else is an error that names the word."""
    one, two = make_pair(tmp_path / "one"), make_pair(tmp_path / "two")
    assert set(read_trusted(f"{one.text} {tmp_path}/two.pub").keys) == {one.id, two.id}
    with pytest.raises(UsageError, match="nothing-here"):
        read_trusted("nothing-here")


def test_a_trusted_key_is_read_from_a_file_of_this_user_alone(tmp_path: Path) -> None:
    """Neither others' writing nor the current directory decides who is trusted."""
    make_pair(tmp_path / "ci")
    file = tmp_path / "ci.pub"
    file.chmod(0o666)
    with pytest.raises(UsageError, match=f"run: chmod go-w {file}"):
        read_trusted(str(file))
    file.chmod(0o644)
    with contextlib.chdir(tmp_path):
        with pytest.raises(UsageError, match=f"write {file}"):
            read_trusted("ci.pub")
        with pytest.raises(UsageError, match=f"write {tmp_path}/ci"):
            signing_key(Path("ci"), make=False)
        with pytest.raises(UsageError, match=r"missing\.pub does not exist"):
            read_trusted("missing.pub")
    if os.name == "posix" and os.geteuid() == 0:
        for path in (file, tmp_path / "ci"):
            os.chown(path, 65534, -1)
        with pytest.raises(UsageError, match="belongs to another user"):
            read_trusted(str(file))
        with pytest.raises(UsageError, match="belongs to another user"):
            load_signing_key(tmp_path / "ci")


def test_the_own_key_is_trusted(tmp_path: Path) -> None:
    """It is the one that a variable names, or that of the user's configuration."""
    assert not read_trusted("").keys
    own, made = signing_key(None, make=True)
    assert made and set(read_trusted("").keys) == {own.public.id}
    again, made = signing_key(None, make=True)
    assert not made and again.public == own.public
    other = make_pair(tmp_path / "ci")
    assert set(read_trusted("", tmp_path / "ci").keys) == {other.id}


def test_a_secret_and_a_public_key_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """A copy of a public key signs nothing, and a secret one in the wrong variable is refused unprinted."""
    make_pair(tmp_path / "mine")
    copy = tmp_path / "copy"
    copy.write_bytes((tmp_path / "mine.pub").read_bytes())
    copy.chmod(0o600)
    with pytest.raises(UsageError, match="not a secret key"):
        load_signing_key(copy)
    secret = (tmp_path / "mine").read_text().strip()
    for word in (secret, str(tmp_path / "mine")):
        with pytest.raises(UsageError, match="not a public key") as raised:
            read_trusted(word)
        assert secret[5:30] not in str(raised.value)
