"""A second process of a PoCL build, which compiles its work-group functions for large grids.

Within one process PoCL takes a function that it has loaded for a kernel and a local size for any
grid, so one process can build those for small grids or those for large ones, never both. This one
leaves its part in PoCL's own cache, from where the build itself packs it into the binary. Only workers
come here: they are the ones that may start a process. Its end costs only what it would have left.
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
    """Compile for grids of some local sizes in a process of its own; raises nothing for what it does."""
    subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=pickle.dumps((os.getpid(), request, compilation, sizes)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def main() -> None:
    """The process itself: what it is to do comes from its parent, through a pipe of their own."""
    parent, request, compilation, sizes = pickle.load(sys.stdin.buffer)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return  # the parent went before the signal was armed
    device = platforms.find(request.target)
    context = compiler.context_of(device)
    program = compiler.build_source(context, device, request, compilation)
    compiler.specialized_binary(program, device, sizes)


if __name__ == "__main__":
    main()
