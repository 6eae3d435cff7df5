"""Folders laid by the rules of DeepGEMM's cache, and what is said of those that break them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.why import Served
from gpucache.caches.registry import of_others
from tests.caches.deep_gemm.build import CUBIN, NAME, key, put
from tests.caches.opened import HOUR_NS, kinds, only, opened
from tests.payload.build import elf64

SYSTEM = of_others("deep-gemm")

_LIBRARY = elf64()


def test_a_kernel_says_its_name_and_architecture(tmp_path: Path) -> None:
    """The name from its folder, the architecture from its cubin."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.key, entry.program, entry.target) == (key(0), NAME, "cuda:sm_90")
    assert not cache.check(entry).findings and cache.extract(entry) == CUBIN
    (reach,) = cache.explain({"key": (key(0)[:8].encode(),)})
    assert reach.verdict is Served.HIT


def test_what_the_first_release_wrote_is_read_as_well(tmp_path: Path) -> None:
    """Twelve digits, a library and its arguments."""
    folder = tmp_path / "cache" / f"kernel.gemm_fp8_fp8_bf16_nt.{key(0)[:12]}"
    folder.mkdir(parents=True)
    for name, data in (("kernel.cu", b"//"), ("kernel.args", b"('lhs',)"), ("kernel.so", _LIBRARY)):
        (folder / name).write_bytes(data)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert not cache.check(entry).findings and cache.extract(entry) == _LIBRARY


def test_two_kernels_of_a_name_differ_by_their_source(tmp_path: Path) -> None:
    """It is all of the key that is kept."""
    put(tmp_path, 0)
    put(tmp_path, 1)
    cache = opened(SYSTEM, tmp_path)
    reports = [{one.label: one.value for one in cache.report(entry).key_fields} for entry in cache.scan()]
    differing = {label for label in reports[0] if reports[0][label] != reports[1][label]}
    assert differing == {"key", "SHA-256 of the source"}


def _cubin_cut(folder: Path) -> None:
    (folder / "kernel.cubin").write_bytes(CUBIN[:-3])


def _cubin_empty(folder: Path) -> None:
    (folder / "kernel.cubin").write_bytes(b"")


def _cubin_other(folder: Path) -> None:
    (folder / "kernel.cubin").write_bytes(b"garbage")


def _cubin_gone(folder: Path) -> None:
    (folder / "kernel.cubin").unlink()


def _source_gone(folder: Path) -> None:
    (folder / "kernel.cu").unlink()


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_cubin_cut, FindingKind.CORRUPT, "loads it nevertheless"),
        (_cubin_empty, FindingKind.TRUNCATED, "loads it nevertheless"),
        (_cubin_other, FindingKind.MISLABELLED, "loads it nevertheless"),
        (_cubin_gone, FindingKind.TRUNCATED, "Corrupted JIT cache directory"),
        (_source_gone, FindingKind.TRUNCATED, "Corrupted JIT cache directory"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], None], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the whole folder, so that DeepGEMM compiles the kernel again."""
    other, folder = put(tmp_path, 1), put(tmp_path)
    damage(folder)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not folder.exists() and other.exists()


def test_a_folder_with_something_else_in_it_stays_whole(tmp_path: Path) -> None:
    """DeepGEMM would end every program at the folder without a kernel that a removal left."""
    folder = put(tmp_path)
    (folder / "notes.txt").write_bytes(b"mine")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert "notes.txt" in entry.stays and cache.remove(entry, "test") is not None
    assert {path.name for path in folder.iterdir()} == {"kernel.cu", "kernel.cubin", "notes.txt"}


def test_what_a_stopped_compile_leaves_is_told_and_swept(tmp_path: Path) -> None:
    """Below ``tmp/``, where it makes the folders that it renames; an hour is long enough for a compile."""
    folder = put(tmp_path)
    left = tmp_path / "tmp" / "4711-0000abcd-0000abcd-0000abcd" / "kernel.cu"
    left.parent.mkdir(parents=True)
    left.write_bytes((folder / "kernel.cu").read_bytes())
    made_ns = left.stat().st_mtime_ns
    assert not list(opened(SYSTEM, tmp_path, made_ns).leftovers())
    cache = opened(SYSTEM, tmp_path, made_ns + 2 * HOUR_NS)
    (found,) = cache.leftovers()
    assert kinds(found) == [FindingKind.LEFTOVER]
    assert cache.repair(found, None).findings[0].repaired and not left.exists()


def test_servers_above_it_put_it_elsewhere_and_those_places_are_found_too(tmp_path: Path) -> None:
    """Beside its own, where a folder is there."""
    home = {"HOME": str(tmp_path)}
    (location,) = SYSTEM.locations(home)
    assert location.root == str(tmp_path / ".deep_gemm") and not location.enabled
    put(tmp_path / ".cache/vllm/deep_gemm")
    put(tmp_path / ".cache/sglang/deep_gemm")
    found = [(one.root, one.enabled) for one in SYSTEM.locations({**home, "DG_JIT_CACHE_DIR": "/here"})]
    assert found == [
        ("/here", False),
        (str(tmp_path / ".cache/vllm/deep_gemm"), True),
        (str(tmp_path / ".cache/sglang/deep_gemm"), True),
    ]
