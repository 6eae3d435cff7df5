"""Mesa's own cache, as rusticl writes it on this CPU: Mesa's behaviour with damage and after a repair."""

import os
import subprocess
import sys
from functools import cache as once
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.patience import PATIENCE_S

SYSTEM = of_others("mesa")

pytestmark = pytest.mark.slow
_DRIVER = Path("/etc/OpenCL/vendors/rusticl.icd")

_PROGRAM = """
import numpy as np
import pyopencl as cl
platform = next(one for one in cl.get_platforms() if one.name == "rusticl")
context = cl.Context(platform.get_devices()[:1])
source = "kernel void scale(global float *x) { x[get_global_id(0)] *= 3; }"
queue, x = cl.CommandQueue(context), np.ones(4, np.float32)
buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
cl.Program(context, source).build(cache_dir=False).scale(queue, (4,), None, buffer)
cl.enqueue_copy(queue, x, buffer)
assert x.tolist() == [3, 3, 3, 3]
"""


def _run(root: Path, **variables: str) -> None:
    icd = {"OCL_ICD_VENDORS": str(_DRIVER)} if _DRIVER.is_file() else {}
    environ = {
        **os.environ,
        **icd,
        "MESA_SHADER_CACHE_DIR": str(root),
        "RUSTICL_ENABLE": "llvmpipe",
        **variables,
    }
    subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environ, capture_output=True, timeout=PATIENCE_S, check=True
    )


@once
def _works(root: Path) -> bool:
    try:
        _run(root)
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.fixture(autouse=True)
def _rusticl(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not _works(tmp_path_factory.getbasetemp()):
        pytest.skip("no rusticl compiles here")


@pytest.mark.parametrize("form", ["", "_db", "_sf"])
def test_what_mesa_writes_is_sound_in_each_of_its_forms(form: str, tmp_path: Path) -> None:
    """Files for each entry, a database and an archive."""
    variable = {"_db": "MESA_DISK_CACHE_DATABASE", "_sf": "MESA_DISK_CACHE_SINGLE_FILE"}.get(form, "UNUSED")
    _run(tmp_path, **{variable: "1"})
    places = list(SYSTEM.locations({"MESA_SHADER_CACHE_DIR": str(tmp_path)}))
    assert f"mesa_shader_cache{form}" in [Path(one.root).name for one in places]
    for place in places:
        cache = SYSTEM.open(place)
        entries = list(cache.scan())
        assert entries and not [one for entry in entries for one in cache.check(entry).findings]
        assert not list(cache.leftovers())


def test_after_a_repair_mesa_compiles_again_and_its_sum_is_right(tmp_path: Path) -> None:
    """The damaged entry exists again, and ``index`` agrees with the files."""
    _run(tmp_path)
    root = tmp_path / "mesa_shader_cache"
    cache = SYSTEM.open(Location("mesa", str(root), "--cache", enabled=True))
    (entry, *_) = cache.scan()
    path = Path(entry.path)
    path.write_bytes(path.read_bytes()[:-9])
    (entry,) = cache.find(entry.key)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and cache.repair(checked, entry).findings[0].repaired
    _run(tmp_path)
    assert path.exists()
    total = int.from_bytes((root / "index").read_bytes()[:8], sys.byteorder)
    assert total == sum(512 * one.stat().st_blocks for one in root.glob("??/*"))
