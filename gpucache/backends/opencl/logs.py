"""The log of a build, under the program's own name. Pure: loads no PyOpenCL."""

import re

# PoCL names the source by a temporary file, Intel by a running number where a line names a place. The pattern
# finds where a path can begin, because otherwise a log full of slashes would be searched from each of them.
_SOURCE_NAMES = (
    r"""(?m)(?:(?<![^\s"'(<])/[^\s"'(<]*tempfile[\w-]*\.cl|<program source>|<stdin>|^\d+(?=:\d+:\d+:)"""
    r"""|(?<=^In file included from )\d+(?=:\d+:))"""
)


def program_log(log: str, name: str) -> str:
    """The log of a build, in which the program has its display name."""
    return re.sub(_SOURCE_NAMES, lambda _: name, log).strip("\0\n ")
