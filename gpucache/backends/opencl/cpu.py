"""The instruction sets of the CPU here, which tell apart devices that call themselves the same."""

import platform as machine
import re
from fnmatch import translate
from functools import cache
from pathlib import Path

FEATURES = (
    *("sse*", "ssse*", "avx*", "amx*", "fma*", "f16c", "bmi?", "abm", "lzcnt", "popcnt", "adx", "aes"),
    *("vaes", "pclmulqdq", "vpclmulqdq", "gfni", "sha*", "movbe", "movdir*", "cx16", "xop", "tbm", "mmx*"),
    *("3dnow*", "serialize", "rtm", "waitpkg", "hreset", "enqcmd", "cldemote", "uintr"),
)
"""Patterns of the features of an x86 that a code generator can use; mitigations and power features say
nothing about a binary. Of other CPUs all features count."""
_IS_FEATURE = re.compile("|".join(map(translate, FEATURES))).match


@cache
def cpu_features() -> str:
    """The instruction sets of this CPU, sorted; ``unknown: <machine>`` if they cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return f"unknown: {machine.machine()}"
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() == "flags":
            return " ".join(sorted(flag for flag in value.split() if _IS_FEATURE(flag)))
        if label.strip() == "Features":
            return " ".join(sorted(value.split()))
    return f"unknown: {machine.machine()}"
