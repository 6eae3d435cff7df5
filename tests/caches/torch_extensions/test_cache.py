"""Directories of PyTorch's extensions, and the locks of killed builds."""

import os
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.format import HOUR_NS
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only, opened
from tests.caches.torch_extensions.build import LIBRARY, PYTHON, put

SYSTEM = of_others("torch-extensions")


def _age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, ns=(HOUR_NS, HOUR_NS))


def test_a_module_has_its_name_python_and_inputs(tmp_path: Path) -> None:
    """From its directories and from ``build.ninja``."""
    folder = put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.target, entry.artifact_kind) == (folder.name, PYTHON, "elf")
    fields = {field.label: field.value for field in cache.report(entry).key_fields}
    assert (fields["cxx"], fields["source"]) == ("c++", f"{folder}/main.cpp")
    assert not cache.check(entry).findings and cache.extract(entry) == LIBRARY
    assert not list(cache.leftovers())


def test_the_lock_of_a_killed_build_is_wrong_and_goes_alone(tmp_path: Path) -> None:
    """Each start writes its sources and waits for the removal without end; afterwards ninja goes on."""
    folder = put(tmp_path)
    (folder / "lock").touch()
    _age(folder)
    (folder / "main.cpp").touch()
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.MISPLACED] and "wait for ever" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not (folder / "lock").exists() and (folder / f"{folder.name}.so").exists()


def test_a_module_that_is_being_built_stays(tmp_path: Path) -> None:
    """Its lock is young, or an object is."""
    folder = put(tmp_path)
    (folder / "lock").touch()
    os.utime(folder / "lock", ns=(HOUR_NS, HOUR_NS))
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert kinds(cache.check(entry)) == [FindingKind.LOCKED]
    kept = cache.remove(entry, "test")
    assert kept is not None and "a process builds it" in kept.reason and folder.exists()


@pytest.mark.parametrize(
    ("file", "content", "kind"),
    [
        ("rasterizer_0.so", LIBRARY[:-3], FindingKind.CORRUPT),
        ("rasterizer_0.so", b"", FindingKind.TRUNCATED),
        ("rasterizer_0.so", b"garbage", FindingKind.MISLABELLED),
        ("main.o", b"", FindingKind.TRUNCATED),
        ("build.ninja", b"\x91", FindingKind.CORRUPT),
    ],
)
def test_damage_is_found_and_repaired(file: str, content: bytes, kind: FindingKind, tmp_path: Path) -> None:
    """A repair removes the module, and PyTorch builds it again."""
    folder = put(tmp_path)
    (folder / file).write_bytes(content)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    assert cache.repair(checked, entry).findings[0].repaired and not folder.exists()


def test_modules_below_a_named_root_have_no_python(tmp_path: Path) -> None:
    """As ``TORCH_EXTENSIONS_DIR`` has them; a directory without a library is an orphan."""
    put(tmp_path, 1, python=".")
    folder = put(tmp_path, python=".")
    (folder / f"{folder.name}.so").unlink()
    cache = SYSTEM.open(Location(SYSTEM.name, str(tmp_path), "TORCH_EXTENSIONS_DIR", enabled=True))
    (entry,) = (one for one in cache.scan() if one.program == folder.name)
    assert (entry.program, entry.target) == (folder.name, "")
    assert kinds(cache.check(entry)) == [FindingKind.ORPHAN]
