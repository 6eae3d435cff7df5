"""Whether hipRTC is installed, as by Debian's libamdhip64-5 and libhiprtc-builtins5."""

from ctypes.util import find_library

import pytest


def need_hip() -> None:
    for name in ("amdhip64", "amd_comgr", "hiprtc-builtins"):
        if find_library(name) is None:
            pytest.skip(f"lib{name} is not installed")
