"""A cache file with what NVRTC made by Futhark's own options."""

from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.verify import Checked
from gpucache.caches.futhark.export import cuda_options, write_file
from gpucache.caches.futhark.format import key_of
from tests.caches.futhark.build import SOURCE, asked, only_entry, open_cache

nvrtc: Any = pytest.importorskip("cuda.bindings.nvrtc")

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
    options = cuda_options((8, 0), (), _ENVIRON)
    path = tmp_path_factory.mktemp("futhark") / "foo.cache"
    write_file(path, key_of(options, SOURCE), _compile(options))
    return path


def test_the_file_is_sound(file: Path) -> None:
    """Nothing is wrong with it, and it holds PTX for compute_80 without a NUL."""
    cache, entry = open_cache(file), only_entry(file)
    assert cache.check(entry) == Checked(entry.key, checksum=False)
    assert entry.target == "cuda:compute_80"
    assert b"\0" not in cache.extract(entry)
    assert ("names of entries", "main_segmap") in cache.report(entry).payload


_REGISTERS = (b"-Dmax_registers=65536", b"-Dmax_registers=32768")


@pytest.mark.parametrize(
    ("environ", "old", "new"),
    [(_ENVIRON, b"", b""), ({}, b"", b""), (_ENVIRON, b"compute_80", b"compute_90"), (_ENVIRON, *_REGISTERS)],
)
def test_one_change_is_a_miss(file: Path, environ: dict[str, str], old: bytes, new: bytes) -> None:
    """The same start is a hit, and whichever input changes, it is none."""
    options = [new if one.encode() == old else one.encode() for one in cuda_options((8, 0), (), environ)]
    assert asked(file, options).hit is (environ == _ENVIRON and not old)
