"""clesperanto's own cache on PoCL, and what clesperanto does with damage and after a repair."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from gpucache.cli import main
from tests.caches.opened import kinds
from tests.pocl import SYSTEM_ICD

SYSTEM = of_others("clesperanto")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("pyclesperanto") is None, reason="clesperanto is not installed"
    ),
    pytest.mark.skipif(not SYSTEM_ICD.is_file(), reason="the system has no PoCL"),
]

_PROGRAM = """
import numpy as np
import pyclesperanto as cle
image = cle.push(np.full((16, 16), 3, np.float32))
assert (cle.pull(cle.add_image_and_scalar(image, scalar=4)) == 7).all()
"""


def _run(home: Path) -> bool:
    """Whether a program adds well; the driver's own cache is another one at each start."""
    vendors = home / "vendors"  # its own loader takes no file
    vendors.mkdir(exist_ok=True)
    shutil.copy(SYSTEM_ICD, vendors)
    environ = {
        **os.environ,
        "HOME": str(home),
        "OCL_ICD_VENDORS": str(vendors),
        "POCL_CACHE_DIR": str(home / f"pocl-{len(list(home.glob('pocl-*')))}"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environ, capture_output=True, timeout=300, check=False
    )
    return done.returncode == 0


def test_a_cut_kernel_ends_programs_until_a_repair(tmp_path: Path) -> None:
    """As the finding says; what clesperanto wrote was sound, and it writes again what was removed."""
    assert _run(tmp_path)
    (location,) = SYSTEM.locations({"HOME": str(tmp_path)})
    cache = SYSTEM.open(location)
    (entry,) = cache.scan()
    assert entry.artifact_kind == "poclbin" and not cache.check(entry).findings
    assert not list(cache.leftovers())
    path = Path(entry.path)
    sound = path.read_bytes()
    path.write_bytes(sound[:20])
    assert not _run(tmp_path) and path.read_bytes() == sound[:20]
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and cache.repair(checked, entry).findings[0].repaired
    assert _run(tmp_path) and path.stat().st_size == len(sound)


def test_what_the_driver_refuses_is_built_again(tmp_path: Path) -> None:
    """clesperanto mends that by itself."""
    assert _run(tmp_path)
    (path,) = (tmp_path / ".cache" / "clesperanto").rglob("*.bin")
    path.write_bytes(b"garbage" * 1000)
    assert _run(tmp_path) and path.read_bytes().startswith(b"poclbin")


def test_warm_tells_that_it_was_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it wrote into the home folder is not counted as warmed."""
    shutil.copy(SYSTEM_ICD, tmp_path)
    for name, value in {"HOME": tmp_path, "OCL_ICD_VENDORS": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    assert main(["warm", "--into", str(tmp_path / "warmed"), "--", sys.executable, "-c", _PROGRAM]) == 3
    said = "".join(capsys.readouterr())
    assert "into clesperanto" not in said and "into pocl" in said
    assert "~/.cache/clesperanto, which was not moved" in said or "your own cache of clesperanto" in said
