"""The public API as the type checker of a user's file sees it."""

import sys
from pathlib import Path

from mypy import api

_FILE = """
import gpucache, pyopencl as cl
from gpucache.cuda import compile_program
from gpucache.opencl import build_program

def use(context: cl.Context) -> None:
    gpucache.install(cache_file="app.cache")
    program: cl.Program = build_program(context, "kernel", local_sizes=[(64,), 16])
    reveal_type(program)
    reveal_type(gpucache.bundle())
    compile_program("kernel", target="sm_90", options=["-DN=4"])
    build_program(context, 1)
    compile_program("kernel", optons=3)
    gpucache.install(5)
"""


def test_a_users_file_is_checked(tmp_path: Path) -> None:
    """Right calls have types, and a wrong argument, a wrong name and a wrong count are errors."""
    file = tmp_path / "user.py"
    file.write_text(_FILE, encoding="utf-8")
    options = ["--config-file=", "--python-executable", sys.executable, "--cache-dir", str(tmp_path / "m")]
    told, errors, code = api.run([*options, "--strict", str(file)])
    lines = [line.partition("user.py:")[2] for line in told.splitlines()]
    assert (errors, code) == ("", 1)
    assert [line for line in lines if "Revealed type" in line and "Any" in line] == []
    assert {line.partition(":")[0] for line in lines if "error:" in line} == {"12", "13", "14"}
