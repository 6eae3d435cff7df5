"""Building as an OpenCL program does that leaves caching to PyOpenCL. Loads PyOpenCL."""

from typing import Any

import pyopencl as cl

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl.options import command_line
from gpucache.errors import CompileError
from gpucache.model import BuildRequest


def build_with_pyopencl(context: Any, request: BuildRequest, compilation: Compilation) -> Any:
    """A ``pyopencl.Program`` that is built through PyOpenCL's own cache; raises CompileError.

    PyOpenCL keeps no cache for platforms that have one of their own (PoCL, NVIDIA); there its build is the
    driver's.
    """
    try:
        text = request.program.source.decode()
    except UnicodeDecodeError:
        raise CompileError(f"PyOpenCL takes text, and {request.program.name} is not UTF-8") from None
    options = [command_line((option,)) for option in compilation.command]
    try:
        return cl.Program(context, text).build(options=options)
    except (cl.Error, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise CompileError(f"PyOpenCL did not build {request.program.name} ({first})", str(error)) from None
