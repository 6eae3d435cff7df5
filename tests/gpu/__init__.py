"""Programs that launch kernels, their tests on a GPU, and ``python -m tests.gpu``, which runs all of them."""

import subprocess
import sys
from functools import cache
from pathlib import Path

_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
_COUNT = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
sys.exit(f"the CUDA driver returned {status}" if status else None if count.value else "it has no device")
"""
_LOAD = "import ctypes; ctypes.CDLL('libnvidia-opencl.so.1')"


@cache
def no_gpu() -> str:
    """Why this machine has no CUDA GPU; empty if it has one. A child process queries the driver."""
    if not any(Path(device).exists() for device in _DEVICES):
        return f"needs a CUDA GPU with its driver: neither {' nor '.join(_DEVICES)} exists"
    return _said("needs a CUDA GPU with its driver", _COUNT)


@cache
def no_nvidia_opencl() -> str:
    """Why NVIDIA's OpenCL cannot be used on this machine; empty if it can."""
    return no_gpu() or _said("needs the OpenCL library of NVIDIA's driver", _LOAD)


def _said(need: str, script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return f"{need}: {done.stderr.strip().rpartition(chr(10))[2]}" if done.returncode else ""
