"""Small CUDA programs over the headers that PyPI carries, plain and through the library."""

import sysconfig
from pathlib import Path

import pytest

from tests.cuda_programs import compare, disagreements

_INCLUDE = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include")
_REFUSED = {"host_only.cu"}
_OPTIONS = {"where.cu": ["-lineinfo"]}


@pytest.mark.slow
def test_a_program_compiles_as_without_a_cache(tmp_path: Path) -> None:
    """It does exactly when NVRTC compiles it, to the same bytes; every header that was opened is keyed."""
    if not (_INCLUDE / "crt/mma.h").is_file():
        pytest.skip("nvidia-cuda-crt is not installed")
    programs = Path(__file__).with_name("cuda")
    compared = compare(programs, [_INCLUDE, _INCLUDE / "cccl"], tmp_path, _OPTIONS)
    assert disagreements(compared) == {}
    assert {name for name, one in compared.items() if not one.compiles} == _REFUSED
    assert all(one.opened for one in compared.values() if one.compiles)
    assert len(compared["cub.cu"].opened) >= 400
    wide = {name for name, one in compared.items() if len(one.covered) > 1.1 * len(one.opened) + 16}
    assert wide <= {"cub.cu"}  # which reaches the headers of every system that Thrust can run on
    assert len(compared["cub.cu"].covered) <= 2.5 * len(compared["cub.cu"].opened)
