"""Directories laid by the rules of Warp's kernel cache, and what is said of those that break them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.why import Served
from gpucache.caches.registry import of_others
from gpucache.errors import FormatError
from tests.caches.opened import PTX, kinds, opened
from tests.caches.warp.build import MODULE, VERSION, digits, put, put_older, put_oldest
from tests.payload.build import elf64

SYSTEM = of_others("warp")


def test_a_module_says_its_name_devices_and_version(tmp_path: Path) -> None:
    """From the names of its files; one that was compiled for two devices is one entry."""
    folder = put(tmp_path)
    (folder / f"{folder.name}.sm80.ptx").write_bytes(PTX)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.scan()
    assert (entry.program, entry.target, entry.artifact_kind) == (MODULE, "cuda:sm_80 cuda:sm_90", "ptx")
    assert entry.key.startswith(digits(0)) and entry.toolchain == (("Warp", VERSION),)
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


def test_a_module_of_an_older_version_is_checked_and_removed(tmp_path: Path) -> None:
    """Warp 1.2 to 1.5 have one name for all files of a directory, and no directory of their version."""
    folder = put_older(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.scan()
    assert (entry.program, entry.target, entry.key[:7]) == (MODULE, "cuda:sm_90", digits(0))
    assert not cache.check(entry).findings and not list(cache.leftovers())
    (folder / "module_codegen.sm90.ptx").write_bytes(PTX[:-3])
    (entry,) = cache.scan()
    assert kinds(cache.check(entry)) == [FindingKind.CORRUPT]
    assert cache.remove(entry, "--all") is None and not folder.exists()


def test_a_module_of_the_oldest_versions_is_checked_and_removed(tmp_path: Path) -> None:
    """Warp 1.0 and 1.1 keep binaries and sources of all modules in one directory each."""
    binaries = put_oldest(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    found = {entry.artifact_kind: entry for entry in cache.scan()}
    assert {entry.program for entry in found.values()} == {f"my.{MODULE}"} and set(found) == {"ptx", "source"}
    assert not any(cache.check(entry).findings for entry in found.values()) and not list(cache.leftovers())
    next(binaries.glob("*.hash")).unlink()
    (entry,) = (one for one in cache.scan() if one.artifact_kind == "ptx")
    assert kinds(cache.check(entry)) == [FindingKind.TRUNCATED]
    assert [cache.remove(one, "--all") for one in cache.scan()] == [None, None]
    assert not binaries.exists()


def test_a_binary_of_another_module_is_told_by_its_kernels(tmp_path: Path) -> None:
    """Warp would load it, and the program fails where it looks its kernel up."""
    folder = put(tmp_path)
    for kernel, told in (("scale", []), ("shift", [FindingKind.MISLABELLED])):
        meta = f'{{"{kernel}_cuda_kernel_forward_smem_bytes": 0}}'
        (folder / f"{folder.name}.meta").write_text(meta, encoding="ascii")
        cache = opened(SYSTEM, tmp_path)
        (entry,) = cache.scan()
        assert kinds(cache.check(entry)) == told


@pytest.mark.parametrize(
    ("source", "found"), [("wp_my.physics", []), ("wp_other", [FindingKind.MISLABELLED])]
)
def test_an_object_file_of_another_module_is_told_by_its_source(
    source: str, found: list[FindingKind], tmp_path: Path
) -> None:
    """Warp 1.0 has no other name in it."""
    binaries = put_oldest(tmp_path)
    (binaries / f"wp_my.{MODULE}.o").write_bytes(elf64(sections=[(".strtab", f"\0{source}.cpp\0".encode())]))
    (entry,) = (one for one in opened(SYSTEM, tmp_path).scan() if "cpu" in one.target)
    assert kinds(opened(SYSTEM, tmp_path).check(entry)) == found


def test_the_digits_that_warp_prints_are_a_key(tmp_path: Path) -> None:
    """``Module physics 5feceb6 load on device``."""
    put(tmp_path)
    (reach,) = opened(SYSTEM, tmp_path).explain({"key": (digits(0).encode(),)})
    assert reach.verdict is Served.HIT


def _binary_cut(folder: Path) -> None:
    (folder / f"{folder.name}.sm90.ptx").write_bytes(PTX[:-3])


def _binary_empty(folder: Path) -> None:
    (folder / f"{folder.name}.sm90.ptx").write_bytes(b"")


def _binary_other(folder: Path) -> None:
    (folder / f"{folder.name}.sm90.ptx").write_bytes(b"garbage")


def _meta_cut(folder: Path) -> None:
    (folder / f"{folder.name}.meta").write_bytes(b'{"k_smem')


def _meta_gone(folder: Path) -> None:
    (folder / f"{folder.name}.meta").unlink()


def _binary_gone(folder: Path) -> None:
    (folder / f"{folder.name}.sm90.ptx").unlink()


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_binary_cut, FindingKind.CORRUPT, "fails at every start"),
        (_binary_empty, FindingKind.TRUNCATED, "fails at every start"),
        (_binary_other, FindingKind.MISLABELLED, "fails at every start"),
        (_meta_cut, FindingKind.CORRUPT, "fails at every start"),
        (_meta_gone, FindingKind.TRUNCATED, "compiles the module again"),
        (_binary_gone, FindingKind.ORPHAN, "compiles the module again"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], None], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the module's directory, and leaves the others."""
    other, folder = put(tmp_path, 1), put(tmp_path)
    damage(folder)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(digits(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    if kind.wrong:
        assert cache.repair(checked, entry).findings[0].repaired
        assert not folder.exists() and other.exists()


def test_code_for_a_cpu_that_is_not_named_does_not_move(tmp_path: Path) -> None:
    """Since digits of the CPU are in the name, others do not load it."""
    folder = put(tmp_path)
    (folder / f"{folder.name}.cpu0eee9287.o").write_bytes(elf64())
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.scan()
    assert ("CPU", "0eee9287") in cache.pack(entry).facts
    (folder / f"{folder.name}.o").write_bytes(elf64())
    (entry,) = cache.scan()
    with pytest.raises(FormatError, match="for which"):
        cache.pack(entry)
