"""What may be read while an OpenCL program is compiled and is no input of the program.

Owns what lies beside an implementation's own files: what else its compiler looks at, and for those that
were never traced where such files usually lie.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpucache.backends.installation import Installation
from gpucache.backends.opencl.options import INTEL, POCL

# PoCL finds its linker by clang's driver, which tells the version of a CUDA toolkit as it starts.
_CUDA_VERSIONS = ("include/cuda.h", "version.txt", "version.json")
_USUAL = (
    *("/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/usr/share/", "/usr/local/lib/", "/usr/local/share/"),
    *("/opt/", "/nix/store/", "/gnu/store/"),
)
_USUAL_CACHES = (".nv", ".cache/neo_compiler_cache", ".cache/mesa_shader_cache")


def own_files(implementation: str, installations: Iterable[Installation]) -> tuple[str, ...]:
    """Paths of files, and with a slash at their end of whole folders.

    ``installations`` are those of all platforms here, as the loader starts all, whichever compiles.
    """
    here = tuple(installations)
    files = (*(str(path) for each in here for path in each.files), *_cuda_versions())
    if implementation in (POCL, INTEL):
        return files
    beside = (f"{path.parent}/" for each in here for path in each.libraries)
    return (*files, *_USUAL, *beside, *(f"{Path.home() / name}/" for name in _USUAL_CACHES))


def _cuda_versions() -> Iterator[str]:
    found = shutil.which("ptxas")
    toolkits = [Path("/usr/local/cuda"), *Path("/usr/local").glob("cuda-*"), Path("/usr/lib/cuda")]
    for toolkit in (*toolkits, *([Path(found).parents[1]] if found else [])):
        yield from (str(toolkit / name) for name in _CUDA_VERSIONS)
