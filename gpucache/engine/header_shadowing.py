"""Headers that changed because a new file of their name is found first, and so shadows the old one.

Reads the few headers of one name. Knows of a compiler's search only the directories in their order.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpucache.keys import NOT_FOUND, Difference, digest, header_of

_MAX_BYTES = 16 * 1024 * 1024
_MOST_HEADERS = 8


def shadows(differences: Iterable[Difference], searched: Sequence[str]) -> dict[str, str]:
    """For each changed header whose old content is in a later directory: the sentence that says so."""
    found = {}
    changed = [
        (name, item)
        for item in differences
        if (name := header_of(item.label)) and not {item.left, item.right} & {None, NOT_FOUND}
    ]
    for name, item in changed[:_MOST_HEADERS]:
        sentence = _shadow(name, item, [Path(directory, name) for directory in searched])
        if sentence is not None:
            found[name] = sentence
    return found


def _shadow(name: str, item: Difference, candidates: Sequence[Path]) -> str | None:
    first: Path | None = None
    for path in candidates:
        content = _digest(path)
        if content is None:
            continue
        if first is None and content == item.right:
            first = path
        elif first is not None and content == item.left:
            return f"a new {name} in {first.parent} shadows the one in {path.parent}"
    return None


def _digest(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return digest(path.read_bytes())
    except OSError:
        return None
