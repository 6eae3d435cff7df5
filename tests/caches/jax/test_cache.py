"""Files laid by the rules of JAX's compilation cache, and what is reported about those that break them."""

import fcntl
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Served
from gpucache.caches import jax
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.errors import FormatError
from tests.caches.jax.build import EXECUTABLE, executable, framed, key, packed, put
from tests.caches.opened import kinds, only, opened

SYSTEM = of_others("jax")

_NOW = 2 * 10**18
_STAYS = "never replaces it"


def _only(root: Path) -> tuple[Cache, CacheEntry]:
    cache = opened(SYSTEM, root, _NOW)
    return cache, only(cache)


def test_an_entry_says_its_module_and_how_long_it_took_to_compile(tmp_path: Path) -> None:
    """The executable is given out without that, and is not looked into."""
    put(tmp_path, module="jit__lambda-1")
    cache, entry = _only(tmp_path)
    assert (entry.key, entry.program, entry.artifact_kind) == (key(0), "jit__lambda-1", "xla-executable")
    assert dict(entry.fields) == {"packed by": "zlib"} and cache.report(entry).compile_ns == 3 * 10**9
    assert not cache.check(entry).findings and cache.extract(entry) == EXECUTABLE


@pytest.mark.parametrize("checksum", [False, True])
def test_a_zstd_frame_is_checked_without_unpacking_it(checksum: bool, tmp_path: Path) -> None:
    """By the lengths of its blocks: whatever is cut off is seen."""
    whole = framed(checksum=checksum)
    put(tmp_path, data=whole)
    cache, entry = _only(tmp_path)
    assert not cache.check(entry).findings and dict(entry.fields)["packed by"] == "zstd"
    assert cache.report(entry).compile_ns in (None, 3 * 10**9)  # this Python may not read zstd
    for cut in (*range(5, 40), len(whole) - 1):
        os.utime(put(tmp_path, data=whole[:cut]), (1, 1))
        cache, entry = _only(tmp_path)
        assert kinds(cache.check(entry)) == [FindingKind.TRUNCATED], cut


@pytest.mark.parametrize("whole", [packed(), framed()])
def test_bytes_behind_the_data_do_no_harm(whole: bytes, tmp_path: Path) -> None:
    """JAX reads up to the end of the data, so that a repair leaves a working entry."""
    put(tmp_path, data=whole + b"garbage")
    cache, entry = _only(tmp_path)
    assert not cache.check(entry).findings


@pytest.mark.parametrize("before", [b"", b"\x03abc", b"\x80\x01" + bytes(128)])
def test_the_executable_of_another_module_is_seen(before: bytes, tmp_path: Path) -> None:
    """JAX would run it; where an executable names no module, nothing can be reported."""
    for number, module in enumerate(("jit_f", "jit_g")):
        put(tmp_path, number, packed(executable(module, before)))
    cache = opened(SYSTEM, tmp_path, _NOW)
    found = {entry.key: kinds(cache.check(entry)) for entry in cache.scan()}
    assert found == {key(0): [], key(1): [FindingKind.MISLABELLED]}


@pytest.mark.parametrize(("here", "gone"), [("0.6.2", True), ("0.10.0", False), ("", False)])
def test_an_entry_of_a_newer_jax_than_those_here_has_no_reader(
    here: str, gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message precedes its executable since 0.10; where no JAX is found, nothing is known."""
    monkeypatch.setattr("gpucache.caches.interpreters.versions_of", lambda _: frozenset(filter(None, [here])))
    jax._is_older_here.cache_clear()
    put(tmp_path)
    entry = only(opened(SYSTEM, tmp_path))
    jax._is_older_here.cache_clear()
    assert (bool(entry.gone), entry.producer) == (gone, "JAX 0.10+")


def test_the_layout_before_0_4_31_is_known(tmp_path: Path) -> None:
    """Its files have no ending, and what a killed writer left is cleared, but a person's file is not."""
    put(tmp_path, old=True, data=packed(executable("jit_f")))
    left, kept = (tmp_path / f"_temp_jit_f-{key(number)}" for number in (1, 2))
    left.write_bytes(packed()[:30])
    kept.write_bytes(b"mine")
    for path in (left, kept):
        os.utime(path, (1, 1))
    cache, entry = _only(tmp_path)
    assert (entry.key, entry.program, entry.producer) == (key(0), "jit_f", "JAX 0.4.20-0.4.30")
    assert SYSTEM.recognises(tmp_path) and not cache.check(entry).findings
    for found in list(cache.leftovers()):
        cache.repair(found, None)
    assert not left.exists() and kept.exists()
    assert cache.remove(entry, "test") is None and not cache.find(key(0))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (packed()[:-1], FindingKind.TRUNCATED),
        (packed()[:20], FindingKind.TRUNCATED),
        (packed()[:-1] + b"!", FindingKind.CORRUPT),
        (b"garbage", FindingKind.CORRUPT),
    ],
)
def test_what_is_wrong_stays_wrong_until_it_is_removed(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """JAX does not write what is there, so that a repair removes it."""
    put(tmp_path, 1)
    path = put(tmp_path, 0, data)
    os.utime(path, (1, 1))
    cache = opened(SYSTEM, tmp_path, _NOW)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and _STAYS in checked.findings[0].detail
    with pytest.raises(FormatError):
        cache.extract(entry)
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()


def test_what_is_being_written_is_not_judged(tmp_path: Path) -> None:
    """JAX writes in place; a minute later it is cut off."""
    path = put(tmp_path, data=packed()[:50])
    for age_s, counts in ((59, False), (61, True)):
        os.utime(path, ns=(_NOW, _NOW - age_s * 10**9))
        cache, entry = _only(tmp_path)
        assert cache.check(entry).counts == counts


def test_the_last_use_is_what_jax_notes(tmp_path: Path) -> None:
    """Both files are one entry, and go together."""
    put(tmp_path, used_ns=1234567890)
    cache, entry = _only(tmp_path)
    assert entry.last_used_ns == 1234567890 and not cache.check(entry).findings
    assert cache.remove(entry, "--all") is None
    assert [path.name for path in tmp_path.iterdir()] == [".lockfile"]


def test_an_entry_without_its_last_use_stops_the_writing_of_others(tmp_path: Path) -> None:
    """Where JAX evicts, as its lock shows; it is sound itself, so JAX serves it and no repair removes it."""
    put(tmp_path, 0)
    cache, entry = _only(tmp_path)
    assert not cache.check(entry).findings
    put(tmp_path, 1, used_ns=5)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.ORPHAN] and "FileNotFoundError" in checked.findings[0].detail
    assert not cache.repair(checked, entry).findings[0].repaired
    assert [one.verdict for one in cache.explain({"key": (key(0).encode(),)})] == ["hit"]


def test_a_last_use_without_its_entry_is_left_over(tmp_path: Path) -> None:
    """No program finds it, and a repair removes it."""
    put(tmp_path, 0)
    put(tmp_path, 1, used_ns=5, only_use=True)
    cache = opened(SYSTEM, tmp_path, _NOW)
    (entry,) = cache.find(key(1))
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.LEFTOVER]
    assert [one.verdict for one in cache.explain({"key": (key(1).encode(),)})] == ["corrupt"]
    assert cache.repair(checked, entry).findings[0].repaired and not cache.find(key(1))


def test_nothing_is_removed_while_a_program_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX counts what is there before it evicts, and dies of a file that is gone."""
    monkeypatch.setattr("gpucache.caches.format._PATIENCE_S", 0)
    put(tmp_path, used_ns=5)
    cache, entry = _only(tmp_path)
    with (tmp_path / ".lockfile").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        kept = cache.remove(entry, "--all")
        assert kept is not None and "JAX's lock is held" in kept.reason
    assert cache.remove(entry, "--all") is None


def test_what_unpacks_to_more_than_is_read_is_neither_sound_nor_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets its beginning for the whole."""
    monkeypatch.setattr(jax, "_LARGEST_BYTES", 1 << 16)
    put(tmp_path, data=packed(bytes(1 << 22)))
    cache, entry = _only(tmp_path)
    checked = cache.check(entry)
    assert not checked.counts and "the rest was not checked" in checked.notes[0]
    with pytest.raises(FormatError, match="more than"):
        cache.extract(entry)


def test_a_lock_that_stays_held_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entries are to go."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    for number in range(5):
        put(tmp_path, number, used_ns=5)
    cache = opened(SYSTEM, tmp_path, _NOW)
    with (tmp_path / ".lockfile").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert all(cache.remove(entry, "--all") for entry in list(cache.scan()))
    assert sum(pauses) < 11


def test_what_xla_tuned_is_no_stranger(tmp_path: Path) -> None:
    """It is in its own directory there."""
    put(tmp_path)
    (tmp_path / "xla_gpu_per_fusion_autotune_cache_dir").mkdir()
    (tmp_path / "xla_gpu_per_fusion_autotune_cache_dir" / "x.textproto").touch()
    assert not list(opened(SYSTEM, tmp_path, _NOW).leftovers())


def test_a_key_is_answered_by_its_digits(tmp_path: Path) -> None:
    """A damaged entry is not a hit."""
    put(tmp_path, 0)
    os.utime(put(tmp_path, 1, packed()[:-1]), (1, 1))
    cache = opened(SYSTEM, tmp_path, _NOW)
    verdicts = [one.verdict for one in cache.explain({"key": tuple(key(n).encode() for n in range(3))})]
    assert verdicts == [Served.HIT, Verdict.CORRUPT, Verdict.NEVER_BUILT]


@pytest.mark.parametrize("environ", [{}, {"HOME": "/home/a"}, {"JAX_COMPILATION_CACHE_DIR": "gs://bucket/x"}])
def test_without_a_folder_there_is_no_cache(environ: dict[str, str]) -> None:
    """JAX has no default place; one in a cloud is not looked at."""
    assert not SYSTEM.locations(environ)


@pytest.mark.parametrize(
    ("variable", "value", "enabled", "words"),
    [
        ("JAX_ENABLE_COMPILATION_CACHE", "False", False, "turns the cache off"),
        ("JAX_ENABLE_COMPILATION_CACHE", "yes", True, ""),
        ("JAX_ENABLE_COMPILATION_CACHE", "", True, "cannot be imported"),
        ("JAX_COMPILATION_CACHE_MAX_SIZE", "0", False, "turns the cache off"),
        ("JAX_COMPILATION_CACHE_MAX_SIZE", "-1", True, ""),
        ("JAX_COMPILATION_CACHE_MAX_SIZE", "1e9", True, "cannot be imported"),
    ],
)
def test_the_variables_of_the_cache(variable: str, value: str, enabled: bool, words: str) -> None:
    """A variable that turns the cache off, or with which JAX cannot be imported, is reported."""
    (location,) = SYSTEM.locations({"JAX_COMPILATION_CACHE_DIR": "/scratch/jax", variable: value})
    told = [one for one in location.problems if variable in one]
    assert location.enabled is enabled and bool(told) is bool(words) and all(words in one for one in told)


def test_the_limit_is_told() -> None:
    """JAX evicts by itself above it."""
    environ = {"JAX_COMPILATION_CACHE_DIR": "/scratch/jax", "JAX_COMPILATION_CACHE_MAX_SIZE": "1000"}
    (location,) = SYSTEM.locations(environ)
    assert location.limit_bytes == 1000


@given(
    st.binary(max_size=80)
    | st.sampled_from((packed(), framed())).flatmap(
        lambda whole: st.integers(0, len(whole)).map(lambda cut: whole[:cut])
    )
)
def test_whatever_a_file_holds_raises_nothing(data: bytes) -> None:
    """It is sound or has one finding, and is given out or refused."""
    with TemporaryDirectory() as folder:
        os.utime(put(Path(folder), data=data), (1, 1))
        cache, entry = _only(Path(folder))
        if cache.check(entry).findings:
            with pytest.raises(FormatError):
                cache.extract(entry)


@pytest.mark.parametrize(
    "place", ["/tmp/123456789", "/cache", f"/{'long/' * 40}cache", "gs://bucket/jax", f"/tmp/{'p' * 73}"]
)
def test_an_executable_tells_the_place_of_xlas_caches_and_the_cpu(place: str, tmp_path: Path) -> None:
    """A string with its length before it, which can be as large as a character of the path."""
    told = f"{place}/xla_gpu_per_fusion_autotune_cache_dir".encode()
    length = bytes([len(told)]) if len(told) < 0x80 else bytes([0x80 | len(told) & 0x7F, len(told) >> 7])
    cpu = b"B\x18x86_64-unknown-linux-gnu\x12\x06znver5\x1a\x09+64bit,+adx"
    put(tmp_path, data=packed(EXECUTABLE + b"\xb2\x14" + length + told + b"\x10\x01" + cpu))
    cache = opened(SYSTEM, tmp_path)
    facts = dict(cache.pack(only(cache)).facts)
    assert facts == {"cache path": place, "CPU": "znver5", "compression": "zlib"}


def test_a_bounded_cache_gets_the_last_use_of_what_came(tmp_path: Path) -> None:
    """Without it JAX writes no other entry; a cache without a bound gets none."""
    put(tmp_path / "there", used_ns=1)
    there = opened(SYSTEM, tmp_path / "there")
    entry = there.pack(only(there))
    assert len(entry.files) == 1
    for name, bounded in (("bounded", True), ("free", False)):
        (tmp_path / name).mkdir()
        if bounded:
            (tmp_path / name / ".lockfile").touch()
        here = opened(SYSTEM, tmp_path / name)
        assert [one.done for one in here.restore([entry])] == [True]
        assert bool(list((tmp_path / name).glob("*-atime"))) is bounded
        assert not here.check(only(here)).findings
