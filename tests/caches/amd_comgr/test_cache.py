"""Files laid by the rules of AMD's code object manager, and what is said of those that break them."""

import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.amd_comgr.build import OUTPUT, file_bytes, key, put
from tests.caches.opened import kinds
from tests.payload.build import elf64

SYSTEM = of_others("amd-comgr")


def test_the_output_is_told_and_given_out_without_its_log(tmp_path: Path) -> None:
    """What one step gave, here bitcode."""
    put(tmp_path)
    cache = SYSTEM.open(Location("amd-comgr", str(tmp_path), "--cache", enabled=True))
    (entry,) = cache.scan()
    assert (entry.key, entry.artifact_kind) == (key(0), "llvm-bitcode")
    assert not cache.check(entry).findings and cache.extract(entry) == OUTPUT


def _huge() -> bytes:
    return (2**64 - 1).to_bytes(8, sys.byteorder) + b"x"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (b"\0\0\0", FindingKind.TRUNCATED),
        (_huge(), FindingKind.TRUNCATED),
        (file_bytes()[:-1], FindingKind.TRUNCATED),
        (file_bytes()[: 8 + len(OUTPUT)], FindingKind.TRUNCATED),
        (file_bytes() + b"x", FindingKind.CORRUPT),
        (file_bytes(elf64(224)[:-9]), FindingKind.CORRUPT),
    ],
)
def test_damage_is_found_and_repaired(data: bytes, kind: FindingKind, tmp_path: Path) -> None:
    """A repair removes the file, and leaves the others."""
    put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = SYSTEM.open(Location("amd-comgr", str(tmp_path), "--cache", enabled=True))
    (entry,) = cache.find(key(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
