"""The instruction sets of the CPU here, which tell apart devices that call themselves the same."""

import platform as machine
from functools import cache

FEATURES = (
    *("sse*", "ssse*", "avx*", "amx*", "fma*", "f16c", "bmi?", "abm", "lzcnt", "popcnt", "adx", "aes"),
    *("vaes", "pclmulqdq", "vpclmulqdq", "gfni", "sha*", "movbe", "movdir*", "cx16", "xop", "tbm", "mmx*"),
    *("3dnow*", "serialize", "rtm", "waitpkg", "hreset", "enqcmd", "cldemote", "uintr"),
)
"""Patterns of the features of an x86 that a code generator can use; mitigations and power features say
nothing about a binary. Of other CPUs all features count."""
_HEAD_BYTES = 64 << 10
"""As many bytes as tell of one CPU; on a machine with many it takes long to be told of all."""


@cache
def cpu_features() -> str:
    """The instruction sets of this CPU, sorted; ``unknown: <machine>`` if they cannot be read."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            lines = file.read(_HEAD_BYTES).splitlines()
    except OSError:
        return f"unknown: {machine.machine()}"
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() == "flags":
            return " ".join(
                sorted(flag for flag in value.split() if any(_is_like(flag, one) for one in FEATURES))
            )
        if label.strip() == "Features":
            return " ".join(sorted(value.split()))
    return f"unknown: {machine.machine()}"


def _is_like(flag: str, pattern: str) -> bool:
    """Whether a feature fits a pattern: an expression of them all takes longer to make than a hit."""
    if pattern.endswith("*"):
        return flag.startswith(pattern[:-1])
    return len(flag) == len(pattern) and all(
        sign in ("?", other) for sign, other in zip(pattern, flag, strict=True)
    )
