"""A cache file with what NVRTC made by Futhark's own options."""

from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Served
from gpucache.caches.futhark.options import CudaSettings, cuda_options, key_of
from gpucache.caches.futhark.writing import write_file
from gpucache.keys import Difference
from tests.caches.futhark.build import SOURCE, asked, only_entry, open_cache

nvrtc: Any = pytest.importorskip("cuda.bindings.nvrtc")

_TUNED = CudaSettings((8, 0), tuning=(("main_tile_size_6", 0, 16),))
_ENVIRON = {"CUDA_HOME": "/nowhere/cuda"}


def _call(function: Any, *arguments: Any) -> Any:
    status, *results = function(*arguments)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, function
    return results[0] if results else None


def _compile(options: tuple[str, ...]) -> bytes:
    """PTX as NVRTC returns it, under the name that Futhark gives its programs."""
    handle = _call(nvrtc.nvrtcCreateProgram, SOURCE, b"futhark-cuda", 0, [], [])
    try:
        _call(nvrtc.nvrtcCompileProgram, handle, len(options), [option.encode() for option in options])
        payload = bytes(_call(nvrtc.nvrtcGetPTXSize, handle))  # filled in place
        _call(nvrtc.nvrtcGetPTX, handle, payload)
        return payload
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as a Futhark program on an A100 would have left it."""
    options = cuda_options(_TUNED, _ENVIRON)
    path = tmp_path_factory.mktemp("futhark") / "foo.cache"
    write_file(path, key_of(options, SOURCE), _compile(options))
    return path


def _asked(file: Path, settings: CudaSettings, environ: dict[str, str]) -> tuple[object, object]:
    options = [option.encode() for option in cuda_options(settings, environ)]
    reach = asked(file, options)
    return reach.verdict, reach.differences


def test_the_file_is_sound(file: Path) -> None:
    """Nothing is wrong with it, and it holds PTX for compute_80 without a NUL."""
    cache, entry = open_cache(file), only_entry(file)
    assert cache.check(entry) == Checked(entry.key, checksum=False)
    assert entry.target == "cuda:compute_80"
    assert b"\0" not in cache.extract(entry)
    assert ("names of entries", "main_segmap") in cache.report(entry).payload


def test_the_same_start_is_a_hit(file: Path) -> None:
    """The same options on another device of the same architecture hit as well."""
    assert _asked(file, _TUNED, _ENVIRON) == (Served.HIT, ())


@pytest.mark.parametrize(
    ("settings", "environ", "difference"),
    [
        (_TUNED, {}, Difference("-I", "-I/nowhere/cuda/include", None)),
        (
            CudaSettings((9, 0), max_shared_memory=165888, tuning=_TUNED.tuning),
            _ENVIRON,
            Difference("-arch", "compute_80", "compute_90"),
        ),
        (
            CudaSettings((8, 0), max_registers=32768, tuning=_TUNED.tuning),
            _ENVIRON,
            Difference("-Dmax_registers", "-Dmax_registers=65536", "-Dmax_registers=32768"),
        ),
    ],
)
def test_one_change_is_named(
    file: Path, settings: CudaSettings, environ: dict[str, str], difference: Difference
) -> None:
    """Whichever input changes, it is the one that is named."""
    options = [option.encode() for option in cuda_options(settings, environ)]
    reach = asked(file, options, environment=b"CUDA_HOME=/nowhere/cuda")
    assert reach.verdict in (Verdict.KEY_CHANGED, Served.FALSE_HIT)
    assert reach.differences == (difference,)
