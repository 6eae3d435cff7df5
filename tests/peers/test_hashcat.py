"""hashcat's own cache on PoCL: hashcat's behaviour with damage and after a repair."""

import shutil
from ctypes.util import find_library
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.children import run_text
from tests.pocl import SYSTEM_ICD

SYSTEM = of_others("hashcat")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("hashcat") is None, reason="hashcat is not installed"),
    pytest.mark.skipif(find_library("OpenCL") is None, reason="the system has no OpenCL loader"),
    pytest.mark.skipif(not SYSTEM_ICD.is_file(), reason="the system has no PoCL"),
]
_MD5_OF_PASSWORD = "5f4dcc3b5aa765d61d8327deb882cf99"


def _found(home: Path) -> bool:
    """Whether hashcat finds the password, for which it needs its kernels."""
    environ = {
        "XDG_CACHE_HOME": str(home),
        "XDG_DATA_HOME": str(home),  # its log of sessions, which HOME does not move
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "OCL_ICD_VENDORS": str(SYSTEM_ICD),
    }
    attack = ("-m", "0", "-a", "3", "--force", "-w", "1", "--potfile-disable", _MD5_OF_PASSWORD, "passwor?l")
    done = run_text(["hashcat", *attack], env=environ)
    return done.returncode == 0 and "Recovered........: 1/1" in done.stdout


def test_a_cut_kernel_ends_hashcat_until_a_repair(tmp_path: Path) -> None:
    """hashcat's own files are sound, and it builds the removed ones again."""
    assert _found(tmp_path)
    root = next(tmp_path.rglob("hashcat/kernels"))
    cache = SYSTEM.open(Location("hashcat", str(root), "--cache", enabled=True))
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    path = next(root.glob("m00000_*.kernel"))
    path.write_bytes(path.read_bytes()[:1000])
    assert not _found(tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and cache.repair(checked, entry).findings[0].repaired
    assert _found(tmp_path) and path.exists()
