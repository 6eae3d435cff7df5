"""A name for a program that was given none: its first kernel's. Pure."""

import re

UNNAMED = "unnamed"
ALIAS = "kernel "
_KERNEL = re.compile(
    rb"(?:__kernel|\bkernel|__global__)\b(?:\s+__attribute__\s*\(\((?:[^()]|\([^()]*\)){0,200}\)\)|\s+__launch_bounds__\s*\([^)]*\))*"
    rb"\s+void\b(?:\s+__launch_bounds__\s*\([^)]*\))?\s+([A-Za-z_]\w*)"
)


def kernel_alias(source: bytes) -> str:
    """The name under which a program's builds are found by who knows only its source."""
    return f"{ALIAS}{program_name(source)}"


def program_name(source: bytes) -> str:
    """The name of the first kernel of a source, or ``unnamed``; for people, never part of a key."""
    match = _KERNEL.search(source[:1_000_000])
    return match[1].decode("ascii") if match else UNNAMED
