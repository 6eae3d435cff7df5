"""The build inputs in a ``build.ninja``, for systems whose modules ninja builds.

Owns reading that file. Must not know which system wrote it.
"""

import re
from collections.abc import Iterator

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.portable import Moving

BUILD = "build.ninja"
NO_MOVING = Moving(
    "ninja builds it again, as it compares absolute paths and the times of files; build it once in the image "
    "that all machines run"
)
_BUILD_BYTES = 1 << 20


def no_text(item: Files) -> Iterator[Problem]:
    """The problem of a ``build.ninja`` that is not text: owners compare it with a new one at each start."""
    if BUILD in item.seen:
        try:
            item.read(BUILD, _BUILD_BYTES).decode()
        except UnicodeDecodeError:
            detail = f"{BUILD} is not UTF-8, at which programs that need the module end at every start"
            yield Problem(FindingKind.CORRUPT, detail)


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
