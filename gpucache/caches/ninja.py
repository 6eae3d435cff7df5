"""The build inputs in a ``build.ninja``, for systems whose modules ninja builds.

Owns reading that file. Must not know which system wrote it.
"""

import re

from gpucache.caches.files import Files

BUILD = "build.ninja"
_BUILD_BYTES = 1 << 20


def built_with(item: Files) -> list[tuple[str, str]]:
    """The variables that are not empty, and the sources, in an entry's ``build.ninja`` if it has one."""
    if BUILD not in item.seen:
        return []
    text = item.part(BUILD, 0, _BUILD_BYTES).decode("utf-8", "replace").replace("$\n", "")
    found = re.findall(r"^(\w+) = (\S.*)$", text, re.MULTILINE)
    sources = re.findall(r"^build .+: (?:cuda_)?compile (.+)$", text, re.MULTILINE)
    return [
        (label, " ".join(value.split())) for label, value in (*found, *(("source", one) for one in sources))
    ]
