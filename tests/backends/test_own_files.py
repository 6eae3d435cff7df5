"""Files that an OpenCL compiler may read although they are not the program's."""

from pathlib import Path

import pytest

from gpucache.backends.installation import Installation
from gpucache.backends.opencl.installations import own_files

HEADER, LIBRARY = Path("/somewhere/share/pocl/include/_kernel.h"), Path("/elsewhere/lib/libx.so")
INSTALLATIONS = [Installation((LIBRARY,), (HEADER,))]


@pytest.mark.parametrize("implementation", ["pocl", "intel", "nvidia", "other"])
def test_the_files_of_every_platform_are_brought(implementation: str) -> None:
    """The loader starts all platforms, and each reads its own files, whichever compiles."""
    assert {str(HEADER), str(LIBRARY)} <= set(own_files(implementation, INSTALLATIONS))


def test_a_toolkit_that_clang_looks_for_is_no_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The version file of a CUDA toolkit may be read, but its other headers are not exempt."""
    ptxas = tmp_path / "toolkit" / "bin" / "ptxas"
    ptxas.parent.mkdir(parents=True)
    ptxas.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(ptxas.parent))
    brought = own_files("pocl", [])
    assert str(tmp_path / "toolkit" / "include" / "cuda.h") in brought
    assert not [path for path in brought if path.endswith("/")]


def test_what_was_never_traced_keeps_its_own_where_it_is_usual() -> None:
    """For such an implementation whole directories are exempt, except those with programs' headers."""
    brought = own_files("other", INSTALLATIONS)
    assert {"/usr/share/", "/elsewhere/lib/"} <= set(brought)
    assert not any("/usr/include/x.h".startswith(path) for path in brought)
