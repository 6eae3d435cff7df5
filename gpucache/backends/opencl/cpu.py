"""The instruction sets of this CPU, which distinguish devices that report the same name."""

import platform as machine
from functools import cache

FEATURES = (
    *(
        "sse*",
        "ssse*",
        "avx*",
        "amx*",
        "fma*",
        "f16c",
        "bmi1",
        "bmi2",
        "abm",
        "lzcnt",
        "popcnt",
        "adx",
        "aes",
    ),
    *("vaes", "pclmulqdq", "vpclmulqdq", "gfni", "sha*", "movbe", "movdir*", "cx16", "xop", "tbm", "mmx*"),
    *("3dnow*", "serialize", "rtm", "waitpkg", "hreset", "enqcmd", "cldemote", "uintr"),
)
"""Patterns of the x86 features that a code generator can use; mitigations and power features do not
affect a binary. For other CPUs all features count. A star is allowed only at the end."""
_BEGUN = tuple(pattern[:-1] for pattern in FEATURES if pattern.endswith("*"))
_HEAD_BYTES = 64 << 10
"""Enough bytes to describe one CPU; reading all of a machine with many takes long."""


@cache
def cpu_features() -> str:
    """The instruction sets of this CPU, sorted; ``unknown: <machine>`` if they cannot be read."""
    try:
        with open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
            lines = file.read(_HEAD_BYTES).decode("latin-1").splitlines()
    except OSError:
        return f"unknown: {machine.machine()}"
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() == "flags":
            return " ".join(
                sorted(flag for flag in value.split() if flag in FEATURES or flag.startswith(_BEGUN))
            )
        if label.strip() == "Features":
            return " ".join(sorted(value.split()))
    return f"unknown: {machine.machine()}"
