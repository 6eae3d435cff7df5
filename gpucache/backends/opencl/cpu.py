"""The instruction sets of the CPU here, which tell apart devices that call themselves the same."""

import platform as machine
import re
from functools import cache
from pathlib import Path

# The features that a code generator can use; mitigations and power features say nothing about a binary.
_ISA_FLAG = re.compile(
    r"s?sse\w*|avx\w*|amx\w*|fma\w*|f16c|bmi\d|abm|lzcnt|popcnt|adx|v?aes|v?pclmulqdq|gfni|sha\w*|movbe"
    r"|movdir\w*|cx16|xop|tbm|mmx\w*|3dnow\w*|serialize|rtm|waitpkg|hreset|enqcmd|cldemote|uintr"
)


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
            return " ".join(sorted(flag for flag in value.split() if _ISA_FLAG.fullmatch(flag)))
        if label.strip() == "Features":
            return " ".join(sorted(value.split()))
    return f"unknown: {machine.machine()}"
