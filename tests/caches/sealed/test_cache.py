"""Files that show that they are whole, and what is said of damaged ones."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from gpucache.caches.sealed import _fx_hash, _rustc_hash
from tests.caches.opened import kinds, lay, only, opened
from tests.caches.sealed.build import MADE, put

_CUT, _BAD, _UNLIKE = FindingKind.TRUNCATED, FindingKind.CORRUPT, FindingKind.MISLABELLED
_FOUND = {
    "firefox": (_CUT, _BAD, _UNLIKE, _BAD),
    "hub-kernels": (_BAD, _BAD, _BAD, _BAD),
    "modular": (_BAD, _BAD, _BAD, _BAD),
    "mpv": (_CUT, _BAD, None, _BAD),
    "qt": (_CUT, _BAD, _UNLIKE, _BAD),
    "tunableop": (_CUT, _BAD, _UNLIKE, None),
}
"""Of an empty file, a half, another first byte, and another one in the middle. mpv's tables of colours have
the names of its shaders and no header."""


@pytest.mark.parametrize("name", MADE)
def test_damage_is_seen_where_the_file_shows_it(name: str, tmp_path: Path) -> None:
    """A sound one has no fault."""
    path, _ = put(name, tmp_path), put(name, tmp_path, 1)
    data, cache = path.read_bytes(), opened(of_others(name), tmp_path)

    def found(damaged: bytes) -> FindingKind | None:
        lay(path, damaged)
        checks = [cache.check(entry) for entry in cache.scan()]
        assert len(checks) == 2 and not any(one.unchecked for one in checks)
        return next((kind for one in checks for kind in kinds(one)), None)

    assert found(data) is None

    half = len(data) // 2
    damaged = (b"", data[:half], b"\xff" + data[1:], data[:half] + b"\xff" + data[half + 1 :])
    assert tuple(map(found, damaged)) == _FOUND[name]


def test_a_shader_of_another_firefox_is_sound(tmp_path: Path) -> None:
    """The first byte has the version, of whose hash nothing is known."""
    path = put("firefox", tmp_path)
    lay(path, b"\x31" + path.read_bytes()[1:])
    cache = opened(of_others("firefox"), tmp_path)
    assert [kinds(cache.check(entry)) for entry in cache.scan()] == [[]]


def test_the_hashes_are_those_of_rust() -> None:
    """As files of Firefox have them, and its older ones."""
    data = bytes(range(45))
    assert (_rustc_hash(data), _fx_hash(data)) == (0xCE6D4CC96928AA6D, 0x948B29B22CC8E5AF)


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_libplacebos_rows_fill_their_file(size: int, tmp_path: Path) -> None:
    """A row has a key, a size and as many bytes."""
    row = b"\0" * 8 + (4 + size).to_bytes(8, "little") + b"code"
    lay(tmp_path / "libplacebo.cache", b"PLDP\1\0\0\0\2\0\0\0" + b"\0" * 16 + row)
    cache = opened(of_others("mpv"), tmp_path)
    assert kinds(cache.check(only(cache))) == ([_BAD] if size else [])


def test_a_download_may_be_named_as_git_names_it(tmp_path: Path) -> None:
    """By SHA-1 of its size and content, as small files are."""
    for name in ("ce013625030ba8dba906f756967f9e9ca394464a", "0" * 40):
        lay(tmp_path / "kernels--org--name" / "blobs" / name, b"hello\n")
    cache = opened(of_others("hub-kernels"), tmp_path)
    found = {entry.program.rpartition("/")[2][:2]: kinds(cache.check(entry)) for entry in cache.scan()}
    assert found == {"ce": [], "00": [_BAD]}
