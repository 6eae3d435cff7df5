"""Where the libraries of this folder are, once they are built."""

import sys
from pathlib import Path

from gpucache.errors import NoDeviceError
from gpucache.native.build import BUILT, LIBRARIES, file_name


def locate(library: str) -> Path:
    """The file of a library by its name, such as ``opencl_layer``; raises NoDeviceError where it is not."""
    path = BUILT / file_name(library)
    if path.is_file():
        return path
    if sys.platform != "linux":
        raise NoDeviceError(f"{path.name} exists for Linux only; run the command there")
    header = LIBRARIES[library].header
    raise NoDeviceError(
        f"{path.name} is not built; install gpucache's wheel for this platform, or a C compiler"
        f"{f' and <{header}>' if header else ''}, then run python -m gpucache.native.build"
    )
