"""CUDA programs over the large header libraries that PyPI carries: cuRAND, MathDx and its CUTLASS."""

import sysconfig
from pathlib import Path

from tests.cuda_programs import compare, disagreements

_NVIDIA = Path(sysconfig.get_path("purelib"), "nvidia")
_FOLDERS = ("cu13/include", "cu13/include/cccl", "mathdx/include", "mathdx/external/cutlass/include")
_PROGRAMS = Path(__file__).with_name("cuda")


def test_a_program_over_a_large_library_compiles_as_without_a_cache(tmp_path: Path) -> None:
    """It does exactly when NVRTC compiles it, to the same bytes; every opened header is keyed.

    Which of them compile depends on these libraries: CUTLASS often needs another CCCL.
    """
    options = {path.name: ["-default-device"] for path in _PROGRAMS.glob("*.cu")}
    compared = compare(_PROGRAMS, [_NVIDIA / folder for folder in _FOLDERS], tmp_path, options)
    assert disagreements(compared) == {}
    assert compared["curand.cu"].compiles
    assert all(one.opened for one in compared.values())
