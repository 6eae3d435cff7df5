"""A library to preload that redirects the paths of some functions, as fakechroot and libredirect do."""

import subprocess
from pathlib import Path

import pytest

from gpucache.native.build import find_compiler

FUNCTIONS = ("open", "openat", "fopen", "stat", "xstat", "access")


def redirecting(folder: Path, here: Path, there: Path, *functions: str) -> dict[str, str]:
    """The variables of a process in which these functions find ``there`` the files that are ``here``."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler is here")
    library = folder / "redirecting.so"
    flags = ("-shared", "-fPIC", "-std=gnu11", "-w", *(f"-D{name}_" for name in functions), "-o", library)
    source = Path(__file__).with_suffix(".c")
    subprocess.run([*compiler.command, *map(str, flags), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "TEST_FROM": str(here), "TEST_TO": str(there)}
