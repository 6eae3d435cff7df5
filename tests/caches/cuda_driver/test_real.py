"""A cache that a driver made: held against what is known of its layout only from listings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.caches.registry import of_others

SYSTEM = of_others("cuda")

_PROGRAM = """
from cuda.core import Device, ObjectCode
Device().set_current()
ptx = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 out)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u64 [%rd2], %rd1;
    ret;
}
'''
print(ObjectCode.from_ptx(ptx).get_kernel("scale").attributes.num_regs())
"""


@pytest.mark.gpu
def test_a_cache_that_a_driver_made_is_told(tmp_path: Path) -> None:
    """It is recognised where the isolation puts it, and has no finding."""
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    environ = {**os.environ, **dict(SYSTEM.isolation(tmp_path).environment), "CUDA_MODULE_LOADING": "EAGER"}
    environ.pop("CUDA_CACHE_DISABLE", None)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (location,) = SYSTEM.locations(environ)
    cache = SYSTEM.open(location)
    (entry,) = cache.scan()
    assert SYSTEM.recognises(Path(location.root))
    assert not cache.check(entry).findings and not list(cache.leftovers())
    assert dict(entry.fields)["index"] == "present" and dict(entry.fields)["files of unusual names"] == "0"
