"""Files laid by the rules of ArrayFire's kernel cache, and what is said of those that break them."""

import struct
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.arrayfire.build import DEVICE, file_bytes, put
from tests.caches.opened import HOUR_NS, PTX, kinds, only, opened

SYSTEM = of_others("arrayfire")


def test_a_kernel_of_opencl_names_its_device(tmp_path: Path) -> None:
    """And the version, in its file's name; the number there begins its key."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(f"{12345678901234567890:016x}")
    assert (entry.program, entry.target, entry.artifact_kind) == ("scale", DEVICE, "ptx")
    assert entry.toolchain == (("ArrayFire", "39"),)
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


def test_a_kernel_of_cuda_has_its_name_inside(tmp_path: Path) -> None:
    """Those that ArrayFire does not generate come with the names that NVRTC gave them."""
    put(tmp_path, data=file_bytes(PTX, transpose="_Z9transposev", other="_Z5otherv"), device="CU_90")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.target) == ("transpose", "cuda:sm_90")
    assert not cache.check(entry).findings and cache.extract(entry) == PTX


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (file_bytes()[:12], FindingKind.TRUNCATED),
        (file_bytes()[:-3], FindingKind.TRUNCATED),
        (file_bytes(PTX, transpose="_Z9transposev")[:20], FindingKind.TRUNCATED),
        (file_bytes()[:-3] + b"xyz", FindingKind.CORRUPT),
    ],
)
def test_damage_is_found_and_repaired(data: bytes, kind: FindingKind, tmp_path: Path) -> None:
    """What ArrayFire would find as it loads the kernel."""
    put(tmp_path, 1)
    path = put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = [one for one in cache.scan() if one.path == str(path)]
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "compiles it again" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()


def test_the_hash_is_what_arrayfires_own_function_makes(tmp_path: Path) -> None:
    """The number is what that printed of these bytes."""
    binary = b"kernel void scale"
    put(tmp_path, data=struct.pack("=QQ", 232362690225322628, len(binary)) + binary)
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings


def test_a_binary_that_only_its_driver_knows_is_sound(tmp_path: Path) -> None:
    """Its hash is that of what it holds."""
    put(tmp_path, data=file_bytes(b"of a vendor that nobody knows"))
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings


def test_what_a_writer_left_is_told_and_a_number_of_ones_own_is_not(tmp_path: Path) -> None:
    """It is called by digits alone, so what it begins with decides."""
    put(tmp_path)
    left = tmp_path / "11400714819323198485"
    left.write_bytes(file_bytes()[:30])
    cache = opened(SYSTEM, tmp_path, now_ns=left.stat().st_mtime_ns + 2 * HOUR_NS)
    (told,) = cache.leftovers()
    assert told.findings[0].detail.startswith("left by a writer")
    left.write_bytes(b"the year 2026, in my own words and dear to me")
    (told,) = cache.leftovers()
    assert "as well" in told.findings[0].detail


def test_a_length_beyond_every_file_is_damage(tmp_path: Path) -> None:
    """Of a kernel's name."""
    put(tmp_path, data=struct.pack("=QQ", 1, 2**64 - 1) + PTX)
    cache = opened(SYSTEM, tmp_path)
    assert kinds(cache.check(only(cache))) == [FindingKind.TRUNCATED]
