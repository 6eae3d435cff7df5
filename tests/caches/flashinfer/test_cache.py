"""Folders laid by the rules of FlashInfer's cache, and what is said of those that break them."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.flashinfer.build import ARCHS, LIBRARY, OBJECT, VERSION, put
from tests.caches.opened import kinds, only, opened

SYSTEM = of_others("flashinfer")


def test_a_module_says_its_name_architectures_and_version(tmp_path: Path) -> None:
    """As its folders are called; locks, generated sources and what it downloads are its own."""
    put(tmp_path)
    for own in (f"{VERSION}/{ARCHS}/cached_ops/tmp", f"{VERSION}/{ARCHS}/generated/gen", "cubins/abc"):
        (tmp_path / own).mkdir(parents=True)
    (tmp_path / VERSION / "flashinfer_jit.log").touch()  # where no GPU names an architecture
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.target, entry.artifact_kind) == ("batch_decode_0", "cuda:sm_90a", "elf")
    assert entry.toolchain == (("FlashInfer", VERSION),)
    assert not cache.check(entry).findings and cache.extract(entry) == LIBRARY
    assert not list(cache.leftovers())


def test_what_two_modules_were_built_with_differs_by_label(tmp_path: Path) -> None:
    """All of it is in ``build.ninja``, on lines that are folded; what is empty is not told."""
    put(tmp_path, 0)
    put(tmp_path, 1, cuda_home="/opt/cuda")
    cache = opened(SYSTEM, tmp_path)
    reports = [{one.label: one.value for one in cache.report(entry).key_fields} for entry in cache.scan()]
    assert reports[0]["cuda_cflags"] == "$common_cflags -gencode=arch=compute_90a,code=sm_90a -O3"
    assert {label for label in reports[0] if reports[0][label] != reports[1][label]} == {
        "key", "name", "cuda_home",
    }  # fmt: skip


def test_a_module_whose_sources_are_gone_is_read_by_nobody(tmp_path: Path) -> None:
    """Another FlashInfer of this version has them elsewhere, and builds everything anew."""
    put(tmp_path, source="/nowhere/page.cu")
    assert only(opened(SYSTEM, tmp_path)).gone == "FlashInfer with /nowhere/page.cu"


def test_versions_without_a_folder_and_modules_of_the_cute_dsl_are_read(tmp_path: Path) -> None:
    """The folder of the architectures lay at the top; a module of the CuTe DSL has objects alone."""
    folder = tmp_path / "80_90" / "cached_ops" / "quantize_sm100a_cute_dsl"
    folder.mkdir(parents=True)
    (folder / "k.o").write_bytes(OBJECT)
    (folder / "meta.json").write_bytes(b"{}")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert entry.target == "cuda:sm_80 cuda:sm_90" and not entry.toolchain
    assert not cache.check(entry).findings and cache.extract(entry) == OBJECT


def _library_cut(folder: Path) -> None:
    (folder / f"{folder.name}.so").write_bytes(LIBRARY[:-3])


def _library_empty(folder: Path) -> None:
    (folder / f"{folder.name}.so").write_bytes(b"")


def _library_other(folder: Path) -> None:
    (folder / f"{folder.name}.so").write_bytes(b"garbage")


def _object_cut(folder: Path) -> None:
    (folder / f"{folder.name}.cuda.o").write_bytes(OBJECT[:-3])


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_library_cut, FindingKind.CORRUPT, "at every start"),
        (_library_empty, FindingKind.TRUNCATED, "at every start"),
        (_library_other, FindingKind.MISLABELLED, "at every start"),
        (_object_cut, FindingKind.CORRUPT, "the next link"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], None], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the module with its objects, and leaves the others."""
    other, folder = put(tmp_path, 1), put(tmp_path)
    damage(folder)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.program == folder.name)
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not folder.exists() and other.exists()


def test_a_module_that_is_being_built_stays(tmp_path: Path) -> None:
    """FlashInfer holds a lock of its own for each."""
    folder = put(tmp_path)
    place = folder.parent / "tmp" / f"{folder.name}.lock"
    place.parent.mkdir()
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    with place.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = cache.remove(entry, "test")
        assert kept is not None and "FlashInfer is building it" in kept.reason and folder.exists()
    assert cache.remove(entry, "test") is None and not folder.exists()


def test_a_source_that_may_not_be_looked_at_is_no_damage(tmp_path: Path) -> None:
    """As one in the folder of another user, or with a name that no file can have."""
    put(tmp_path, source="/" + "x" * 300)
    entry = only(opened(SYSTEM, tmp_path))
    assert entry.damage is None and not entry.gone
