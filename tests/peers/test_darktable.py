"""darktable's own cache on Intel's CPU driver: darktable's behaviour with damage and after a repair."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.children import run_text

SYSTEM = of_others("darktable")

_INTEL = Path(sys.prefix, "lib", "libintelocl.so")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("darktable-cltest") is None, reason="darktable is not installed"),
    pytest.mark.skipif(not _INTEL.is_file(), reason="intel-opencl-rt is not installed"),
]


def _tested(home: Path) -> str:
    vendors = home / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "intel.icd").write_text(f"{_INTEL}\n", encoding="ascii")
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin", "OCL_ICD_VENDORS": str(vendors)}
    done = run_text(["darktable-cltest"], env=environ)
    return done.stdout + done.stderr


def _allow_cpus(home: Path) -> None:
    """Enable in darktable's settings the devices that it disabled because they are not GPUs."""
    settings = home / ".config" / "darktable" / "darktablerc"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(re.sub(r"(?m)^(cldevice_v\d_\w+=(?:\S+ ){7})1", r"\g<1>0", text), encoding="utf-8")


def test_a_binary_that_fails_to_build_turns_opencl_off_until_a_repair(tmp_path: Path) -> None:
    """darktable's own files are sound, and it writes the removed ones again.

    A truncated one is refused by the driver, and darktable repairs it by itself.
    """
    _tested(tmp_path)
    _allow_cpus(tmp_path)
    if "OpenCL successfully initialized" not in _tested(tmp_path):
        pytest.skip("this darktable takes no CPU")
    (location,) = SYSTEM.locations({"HOME": str(tmp_path)})
    cache = SYSTEM.open(location)
    entries = list(cache.scan())
    assert len(entries) > 20 and not list(cache.leftovers())
    assert not [finding for one in entries for finding in cache.check(one).findings]
    (path,) = (Path(one.path) for one in entries if one.program == "blurs")
    sound = path.read_bytes()
    middle = len(sound) // 2

    path.write_bytes(sound[:middle])
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    assert kinds(cache.check(entry)) == [FindingKind.CORRUPT]
    assert "could not load cached binary" in _tested(tmp_path) and path.stat().st_size == len(sound)

    path.write_bytes(sound[:middle] + b"x" * 3000 + sound[middle + 3000 :])
    assert "failed to compile program" in _tested(tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    assert cache.remove(entry, "--all") is None and len(list(cache.scan())) == len(entries) - 1
    assert "OpenCL successfully initialized" in _tested(tmp_path) and path.stat().st_size == len(sound)
