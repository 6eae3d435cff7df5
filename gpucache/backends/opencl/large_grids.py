"""A second process of a PoCL build, which compiles its work-group functions for large grids.

Once PoCL has loaded a function for a kernel and a local size, the process uses it for any grid. So one
process can build functions for small grids or for large ones, never both. This second process leaves its part
in PoCL's own cache, and from there the build itself packs it into the binary. Only workers start it, because
a library must not start processes. If it dies, only its own part is missing.
"""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl import compiler, platforms
from gpucache.model import BuildRequest

_PR_SET_PDEATHSIG = 1


def compile_apart(request: BuildRequest, compilation: Compilation, sizes: Sequence[str]) -> None:
    """Compile for some local sizes in another process; a failure raises nothing."""
    subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=pickle.dumps((os.getpid(), request, compilation, sizes)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def main() -> None:
    """Run the second process, which reads its job from a pipe."""
    parent, request, compilation, sizes = pickle.load(sys.stdin.buffer)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return  # the parent ended before the signal was set
    device = platforms.find(request.target)
    context = compiler.context_of(device)
    program = compiler.build_source(context, device, request, compilation)
    compiler.specialized_binary(program, device, sizes)


if __name__ == "__main__":
    main()
