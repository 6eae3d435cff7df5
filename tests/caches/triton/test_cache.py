"""Directories laid by the rules of Triton's cache, and what is said of those that break them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.evict import Kept
from gpucache.answers.why import Served
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only, opened
from tests.caches.triton.build import CUBIN, KERNEL, LAYOUTS, folder, key, put
from tests.payload.build import elf64

SYSTEM = of_others("triton")


def _only(root: Path) -> tuple[Cache, CacheEntry]:
    cache = opened(SYSTEM, root)
    return cache, only(cache)


def test_a_kernel_says_what_it_was_compiled_with(tmp_path: Path) -> None:
    """From its two JSON files; the key is the hash in hex that Triton itself tells."""
    put(tmp_path, num_stages=3)
    cache, entry = _only(tmp_path)
    assert (entry.key, entry.program, entry.target, entry.artifact_kind) == (
        key(0), KERNEL, "cuda:sm_90", "cubin",
    )  # fmt: skip
    assert (
        dict(entry.fields).items() >= {"num_warps": "4", "num_stages": "3", "triton_version": "3.9.0"}.items()
    )
    checked = cache.check(entry)
    assert not checked.findings and not checked.checksum and "another variant" in checked.unseen
    assert cache.extract(entry) == CUBIN


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="giving files away needs root")
def test_the_owner_of_a_cache_is_named_once(tmp_path: Path) -> None:
    """Root sees one line for the cache with its remedy, not one for each directory in it."""
    for place in (put(tmp_path, 0), put(tmp_path, 1), tmp_path):
        os.chown(place, 12345, -1)
    told = [one.detail for checked in opened(SYSTEM, tmp_path).leftovers() for one in checked.findings]
    assert len(told) == 1 and "set GPUCACHE_OWNER_UID=12345 to look after it" in told[0]


def test_two_kernels_differ_by_option_and_source(tmp_path: Path) -> None:
    """Two kernels differ in the key, in the changed option and in the digest of the source."""
    put(tmp_path, 0)
    (put(tmp_path, 1, num_warps=8) / f"{KERNEL}.source").write_bytes(b"module { another }")
    cache = opened(SYSTEM, tmp_path)
    reports = [{one.label: one.value for one in cache.report(entry).key_fields} for entry in cache.scan()]
    differing = {label for label in reports[0] if reports[0][label] != reports[1][label]}
    assert differing == {"key", "num_warps", "SHA-256 of the source"}


Damage = Callable[[Path], object]
_LIST = f"__grp__{KERNEL}.json"


def _written(name: str, content: bytes) -> Damage:
    return lambda place: (place / name).write_bytes(content)


def _gone(name: str) -> Damage:
    return lambda place: (place / name).unlink()


def _other(flags: int, kernel: str) -> Damage:
    data = elf64(190, flags=flags, abi_version=8, sections=[(f".text.{kernel}", b"code")])
    return _written(f"{KERNEL}.cubin", data)


def _list_cut(place: Path) -> None:
    (place / _LIST).write_bytes((place / _LIST).read_bytes()[:-5])


def _description_lacks_shared(place: Path) -> None:
    told = json.loads((place / f"{KERNEL}.json").read_bytes())
    del told["shared"]
    (place / f"{KERNEL}.json").write_text(json.dumps(told))


_BINARY_GONE, _CHILD_GONE = _gone(f"{KERNEL}.cubin"), _gone(f"{KERNEL}.ttir")


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_list_cut, FindingKind.CORRUPT, "misses it without a word"),
        (_gone(_LIST), FindingKind.ORPHAN, "misses it without a word"),
        (_written(_LIST, b"[" * 100_000), FindingKind.CORRUPT, "nested too deep"),
        (_written(_LIST, b'{"child_paths": {}}'), FindingKind.CORRUPT, "misses it without a word"),
        (_CHILD_GONE, FindingKind.TRUNCATED, "misses it without a word"),
        (_written(f"{KERNEL}.cubin", CUBIN[:-3]), FindingKind.CORRUPT, "at every start"),
        (_written(f"{KERNEL}.cubin", b""), FindingKind.TRUNCATED, "at every start"),
        (_written(f"{KERNEL}.cubin", b"garbage"), FindingKind.MISLABELLED, "at every start"),
        (_other(0x6005A04, "scale"), FindingKind.MISLABELLED, "has no kernel add"),
        (_other(0x6005004, KERNEL), FindingKind.MISLABELLED, "is for cuda:sm_80"),
        (_written(f"{KERNEL}.ttir", b"module { \xff }"), FindingKind.CORRUPT, "so the program fails"),
        (_written(f"{KERNEL}.json", b'{"hash"'), FindingKind.CORRUPT, "at every start"),
        (_description_lacks_shared, FindingKind.CORRUPT, "lacks shared; Triton serves it"),
        (_written(f"{KERNEL}.json", b"{}"), FindingKind.CORRUPT, "lacks target; Triton serves it"),
        (lambda place: put(place.parent, 0, hash=key(5)), FindingKind.MISPLACED, "another entry"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Damage, kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the directory, so that Triton compiles the kernel again."""
    put(tmp_path, 1)
    place = put(tmp_path)
    damage(place)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    if kind.wrong:
        assert cache.repair(checked, entry).findings[0].repaired and not place.exists()


@pytest.mark.parametrize("stage", ["source", "ttir", "ptx"])
@pytest.mark.parametrize("data", [b"", b"other text"])
def test_a_stage_that_only_reads_otherwise_does_no_harm(stage: str, data: bytes, tmp_path: Path) -> None:
    """Programs use the binary alone: a repair leaves a kernel that works."""
    place = put(tmp_path)
    (place / f"{KERNEL}.{stage}").write_bytes(data)
    cache, entry = _only(tmp_path)
    checked = cache.check(entry)
    assert not checked.findings and bool(checked.notes) is not bool(data)


@pytest.mark.parametrize("version", LAYOUTS)
def test_every_version_names_folders_in_its_own_way(version: str, tmp_path: Path) -> None:
    """The key is the same digits, and a newer version shows which entries no program reads."""
    place = put(tmp_path, 0, version)
    cache, entry = _only(tmp_path)
    assert key(0).startswith(entry.key) and SYSTEM.recognises(tmp_path)
    assert entry.producer == f"Triton {version}"
    assert not cache.check(entry).findings and not list(cache.leftovers())
    assert cache.remove(entry, "test") is None and not place.exists()


@pytest.mark.parametrize(
    ("damage", "version", "words"),
    [
        (_list_cut, "3.6.0", "fails at every start"),
        (_list_cut, "3.7.0", "misses it without a word"),
        (_BINARY_GONE, "3.2", "fails at every start"),
        (_BINARY_GONE, "3.7.0", "fails at every start"),
        (_BINARY_GONE, "3.8.0", "misses it without a word"),
        (_CHILD_GONE, "3.7.0", ""),
    ],
)
def test_what_comes_of_damage_depends_on_the_version(
    damage: Damage, version: str, words: str, tmp_path: Path
) -> None:
    """Before 3.8 Triton serves a kernel without the files that are gone, before 3.7 it reads any list."""
    place = put(tmp_path, 0, version) if version in LAYOUTS else put(tmp_path, triton_version=version)
    damage(place)
    cache, entry = _only(tmp_path)
    details = [one.detail for one in cache.check(entry).findings]
    assert len(details) == bool(words) and all(words in one for one in details)


@pytest.mark.parametrize("name", [f"{KERNEL}.ttir.{{}}", f"{{}}/{KERNEL}.ttir"])
def test_what_a_killed_writer_left_is_cleared(name: str, tmp_path: Path) -> None:
    """By its name, whatever it contains: next to the files before 3.2, and since then in a directory."""
    left = put(tmp_path) / name.format("tmp.pid_4194304_0f8fad5b-d9cb-469f-a165-70867728950e")
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"module {")
    os.utime(left, (1, 1))
    cache = opened(SYSTEM, tmp_path)
    (found,) = cache.leftovers()
    assert kinds(found) == [FindingKind.LEFTOVER]
    assert cache.repair(found, None).findings[0].repaired and not left.exists()


def test_a_list_of_another_entry_is_seen(tmp_path: Path) -> None:
    """Triton serves the files that it names."""
    first, second = put(tmp_path, 0), put(tmp_path, 1)
    shutil.copy(second / _LIST, first)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(key(0))
    (finding,) = cache.check(entry).findings
    assert finding.kind is FindingKind.MISPLACED and "serves the file there" in finding.detail


def test_a_moved_cache_is_missed_and_a_copied_one_serves_the_old_files(tmp_path: Path) -> None:
    """As the list names absolute places."""
    put(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    cache, entry = _only(tmp_path / "new")
    copied = cache.check(entry).findings[0]
    assert copied.kind is FindingKind.MISPLACED and "serves the file there" in copied.detail
    shutil.rmtree(tmp_path / "old")
    moved = cache.check(entry).findings[0]
    assert moved.kind is FindingKind.MISPLACED and "which is not there" in moved.detail


def test_what_an_autotuner_measured_and_a_launcher_are_entries_of_their_own(tmp_path: Path) -> None:
    """They are in directories of the same form, without a list."""
    tuned, launcher = folder(tmp_path, 1), folder(tmp_path, 2)
    for place in (tuned, launcher):
        place.mkdir(parents=True)
    (tuned / f"{KERNEL}.autotune.json").write_bytes(b"{}")
    (launcher / "__triton_launcher.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    found = {entry.key: (entry.program, entry.artifact_kind) for entry in opened(SYSTEM, tmp_path).scan()}
    assert found == {key(1): (KERNEL, "autotuning"), key(2): ("__triton_launcher", "elf")}


def test_a_key_is_asked_for_in_hex(tmp_path: Path) -> None:
    """As Triton's own files tell it."""
    put(tmp_path)
    (reach,) = opened(SYSTEM, tmp_path).explain({"key": (key(0)[:8].encode(),)})
    assert reach.verdict is Served.HIT


def test_a_removal_takes_the_folder_and_leaves_what_is_no_kernels(tmp_path: Path) -> None:
    """A directory with a stranger's file in it stays with that."""
    alone, shared = put(tmp_path, 0), put(tmp_path, 1)
    (shared / "diary.json").write_bytes(b"{}")
    cache = opened(SYSTEM, tmp_path)
    assert [cache.remove(entry, "test") for entry in cache.scan()] == [None, None]
    assert not alone.exists() and [path.name for path in shared.iterdir()] == ["diary.json"]


def test_what_torch_compile_keeps_for_each_gpu_is_found_below_its_own_cache(tmp_path: Path) -> None:
    """Among temporary files, or where its variable says, next to Triton's own place."""
    for place in ("torchinductor_me/triton/0", "torchinductor_me/triton/1", "elsewhere/triton/0"):
        put(tmp_path / place)
    home = {"HOME": "/home/me", "USER": "me", "TMPDIR": str(tmp_path)}
    variable = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "elsewhere")}
    found = [location.root for location in SYSTEM.locations({**home, **variable})]
    assert found == [
        "/home/me/.triton/cache",
        str(tmp_path / "elsewhere/triton/0"),
        str(tmp_path / "torchinductor_me/triton/0"),
        str(tmp_path / "torchinductor_me/triton/1"),
    ]


@pytest.mark.parametrize("version", LAYOUTS)
def test_a_stripped_kernel_keeps_its_binary_its_times_and_a_list_of_what_is_there(
    version: str, tmp_path: Path
) -> None:
    """The list no longer names what went, as Triton would miss it otherwise."""
    place = put(tmp_path, 0, version)
    listed = place / _LIST
    os.utime(listed, (1, 1))
    cache, entry = _only(tmp_path)
    assert cache.strips and entry.spare_bytes
    assert cache.strip(entry) is None
    after = only(cache)
    left = {path.name for path in place.iterdir()}
    assert left == {listed.name, *(f"{KERNEL}.{end}" for end in ("json", "ptx", "cubin"))}
    assert set(json.loads(listed.read_bytes())["child_paths"]) == left - {listed.name}
    assert (listed.stat().st_mtime, listed.stat().st_mode & 0o777) == (1, 0o600)
    assert after.size_bytes == entry.size_bytes - entry.spare_bytes and not after.spare_bytes
    assert not cache.check(after).findings and not list(cache.leftovers())


def _list_linked(place: Path) -> None:
    (place / _LIST).symlink_to((place / _LIST).rename(place.parent / "elsewhere"))


@pytest.mark.parametrize(
    "harm", [lambda place: (place / _LIST).chmod(0o666), _list_cut, _list_linked, _BINARY_GONE]
)
def test_a_kernel_that_is_not_sound_is_not_stripped(harm: Damage, tmp_path: Path) -> None:
    """Nor is one whose list others may write to."""
    place = put(tmp_path)
    harm(place)
    cache, entry = _only(tmp_path)
    assert cache.strip(entry) is not None or not entry.spare_bytes
    assert (place / f"{KERNEL}.ttir").exists()


def test_a_kernel_that_was_compiled_again_meanwhile_is_not_stripped(tmp_path: Path) -> None:
    """It changed since the scan."""
    place = put(tmp_path)
    cache, entry = _only(tmp_path)
    (place / f"{KERNEL}.ttir").write_bytes(b"module { another }")
    assert cache.strip(entry) == Kept()
    assert (place / f"{KERNEL}.source").exists()
