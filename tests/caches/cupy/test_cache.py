"""Files laid by the rules of CuPy's kernel cache, and what is told of those that break them."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Served
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.cupy.build import file_bytes, key, put
from tests.caches.opened import HOUR_NS, PTX, kinds, only, opened

SYSTEM = of_others("cupy")

_NAMES = ("_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_")
_NOW = 2 * 10**18


def _only(root: Path) -> tuple[Cache, CacheEntry]:
    cache = opened(SYSTEM, root, _NOW)
    return cache, only(cache)


@pytest.mark.parametrize("names", [(), _NAMES])
def test_a_binary_is_told_and_given_out_without_its_wrapping(names: tuple[str, ...], tmp_path: Path) -> None:
    """The SHA-1, and the mangled names where there are any, are no part of it."""
    put(tmp_path, data=file_bytes(names=names))
    cache, entry = _only(tmp_path)
    assert (entry.key, entry.program, entry.target, entry.artifact_kind) == (
        key(0), "scale", "cuda:compute_90", "ptx",
    )  # fmt: skip
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


_WITH_NAMES = file_bytes(names=_NAMES)


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", FindingKind.TRUNCATED, "CuPy takes it for a miss"),
        (file_bytes()[:-1], FindingKind.CORRUPT, "CuPy takes it for a miss"),
        (file_bytes()[:30], FindingKind.CORRUPT, "CuPy takes it for a miss"),
        (_WITH_NAMES[:70], FindingKind.CORRUPT, "CuPy takes it for a miss"),
        (file_bytes(b"\x93CUPYNE\0\1\0\0\0\xff\0\0\0"), FindingKind.CORRUPT, "mangled names"),
        (file_bytes(b"garbage"), FindingKind.MISLABELLED, "at every start"),
        (file_bytes(PTX[:-3]), FindingKind.CORRUPT, "at every start"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_what_comes_of_it(
    data: bytes, kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """CuPy checks the SHA-1 and nothing else: what passes that, it serves. A repair removes the file."""
    put(tmp_path, 1)
    path = put(tmp_path, 0, data)
    cache = opened(SYSTEM, tmp_path, _NOW)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert entry.damage is not None and entry.damage.kind is kind
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()


def test_a_source_that_was_kept_belongs_to_its_binary(tmp_path: Path) -> None:
    """Both are one entry and go together."""
    put(tmp_path)
    put(tmp_path, data=b"__global__ void scale() {}", ending="cubin.cu")
    cache, entry = _only(tmp_path)
    assert not cache.check(entry).findings and not list(cache.leftovers())
    assert cache.remove(entry, "--all") is None and not list(tmp_path.iterdir())


def test_a_source_without_its_binary_is_half_of_a_pair(tmp_path: Path) -> None:
    """CuPy does not read it."""
    put(tmp_path, 1)
    put(tmp_path, data=b"__global__ void scale() {}", ending="cubin.cu")
    cache = opened(SYSTEM, tmp_path, _NOW)
    (entry,) = cache.find(key(0))
    assert kinds(cache.check(entry)) == [FindingKind.ORPHAN]


@pytest.mark.parametrize("name", ["jitify.pickle", "jitify_6edd_1_12.json", "cupy_callback_0ab.so"])
def test_what_else_cupy_keeps_there_is_no_stranger(name: str, tmp_path: Path) -> None:
    """Where the variable names the place all of CuPy's caches lie in it; they are not removed either."""
    put(tmp_path)
    (tmp_path / name).write_bytes(b"x")
    cache, entry = _only(tmp_path)
    assert not list(cache.leftovers())
    assert cache.remove(entry, "--all") is None and (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("age_ns", "data", "told"),
    [
        (2 * HOUR_NS, file_bytes()[:60], "left by a writer"),
        (2 * HOUR_NS, b"", "left by a writer"),
        (HOUR_NS // 2, file_bytes()[:60], ""),
        (2 * HOUR_NS, b"my notes", "neither reads nor removes"),
        (HOUR_NS + 1, b"1234567890", "as well"),
        (HOUR_NS + 1, b"0" * 40 + b"  thesis.pdf\n", "as well"),
    ],
)
def test_what_a_dead_writer_left_goes_by_age_and_content(
    age_ns: int, data: bytes, told: str, tmp_path: Path
) -> None:
    """People's files may have such a name, too."""
    put(tmp_path)
    path = tmp_path / "tmpab_12xyz"
    path.write_bytes(data)
    os.utime(path, ns=(_NOW - age_ns, _NOW - age_ns))
    cache = opened(SYSTEM, tmp_path, _NOW)
    found = list(cache.leftovers())
    assert [told in one.findings[0].detail for one in found] == [True] * bool(told)
    for checked in found:
        cache.repair(checked, None)
    assert path.exists() is (told != "left by a writer")


def test_a_key_is_answered_by_the_name_on_disk(tmp_path: Path) -> None:
    """A damaged entry is no hit."""
    put(tmp_path, 0)
    put(tmp_path, 1, file_bytes()[:-1])
    cache = opened(SYSTEM, tmp_path, _NOW)
    asked = {"key": tuple(key(number).encode() for number in range(3))}
    verdicts = [reach.verdict for reach in cache.explain(asked)]
    assert verdicts == [Served.HIT, Verdict.CORRUPT, Verdict.NEVER_BUILT]


@pytest.mark.parametrize(
    ("environ", "root", "decided_by"),
    [
        ({"CUPY_CACHE_DIR": "/scratch/cupy", "HOME": "/home/a"}, "/scratch/cupy", "CUPY_CACHE_DIR"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/other"}, "/home/a/.cupy/kernel_cache", "HOME"),
    ],
)
def test_the_variable_or_the_home_decides(environ: dict[str, str], root: str, decided_by: str) -> None:
    """XDG_CACHE_HOME is not asked."""
    (location,) = SYSTEM.locations(environ)
    assert (location.root, location.decided_by, location.enabled) == (root, decided_by, True)


def test_the_variables_that_turn_it_off_or_break_it_are_told() -> None:
    """CuPy cannot be imported with an empty place."""
    (location,) = SYSTEM.locations({"HOME": "/home/a", "CUPY_CACHE_IN_MEMORY": "1", "CUPY_CACHE_DIR": ""})
    assert not location.enabled
    assert any("CUPY_CACHE_IN_MEMORY=1 turns the cache off" in one for one in location.problems)
    assert any("cannot be imported" in one for one in location.problems)


@given(st.binary(max_size=120) | st.integers(0, 150).map(lambda cut: _WITH_NAMES[:cut]))
def test_whatever_a_file_holds_raises_nothing(data: bytes) -> None:
    """It is sound, or has one finding, which a scan may not see yet."""
    with TemporaryDirectory() as folder:
        put(Path(folder), data=data)
        cache, entry = _only(Path(folder))
        assert bool(cache.check(entry).findings) is bool(entry.damage)
