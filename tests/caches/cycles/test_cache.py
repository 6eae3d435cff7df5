"""Files called as Cycles calls its kernels, and what is said of those that hold none."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.cycles.build import put
from tests.caches.opened import PTX, kinds, only, opened
from tests.payload.build import elf64

SYSTEM = of_others("cycles")

CUBIN = elf64(190, flags=0x6005A04, abi_version=8, sections=[(".text.k", b"code")])
AMD = elf64(224, sections=[(".note", b"amdgcn-amd-amdhsa--gfx90a:xnack-")])


@pytest.mark.parametrize(
    ("data", "of", "ending", "target"),
    [
        (PTX, "compute_90", ".ptx", "cuda:compute_90"),
        (CUBIN, "sm_90", ".cubin", "cuda:sm_90"),
        (AMD, "gfx90a", "", "hip:gfx90a"),
        (AMD, "gfx90a", ".hipfb", "hip:gfx90a"),
    ],
)
def test_a_kernel_of_every_backend(data: bytes, of: str, ending: str, target: str, tmp_path: Path) -> None:
    """Those of CUDA, OptiX, HIP and HIP RT; the MD5 in a name begins its key."""
    put(tmp_path, data=data, of=of, ending=ending)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd")
    assert (entry.program, entry.target) == ("kernel", target)
    assert not cache.check(entry).findings and cache.extract(entry) == data


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (PTX[:-3], FindingKind.CORRUPT),
        (b"garbage", FindingKind.MISLABELLED),
    ],
)
def test_damage_is_told_with_what_comes_of_it_and_repaired(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """Cycles never compiles again what is there."""
    put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = [one for one in cache.scan() if one.path == str(path)]
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "until it is removed" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()


def test_the_archives_of_metal_are_left_alone(tmp_path: Path) -> None:
    """They are Cycles' own, and no kernel of any format that is read here."""
    put(tmp_path)
    (tmp_path / "Apple_M4_Max" / "shadow").mkdir(parents=True)
    cache = opened(SYSTEM, tmp_path)
    assert only(cache).program == "kernel" and not list(cache.leftovers())
