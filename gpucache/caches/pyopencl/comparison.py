"""What tells a stored build from a wanted one, as differences and in words. Pure."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpucache.caches.pyopencl import names
from gpucache.keys import Difference

_OTHER_VENV = "the -I folder that PyOpenCL adds differs, as with another virtual environment"


def options(stored: str | None, wanted: str) -> tuple[Difference, ...]:
    """The options as a difference; none where an entry does not name them."""
    return () if stored is None or stored == wanted else (Difference("options", stored, wanted),)


def version(stored: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[Difference, ...]:
    """PyOpenCL's versions as a difference."""
    if stored == wanted:
        return ()
    return (Difference("PyOpenCL", ".".join(map(str, stored)), ".".join(map(str, wanted))),)


def told(differences: Sequence[Difference]) -> str:
    """Which of the inputs differ, as a clause."""
    labels = {one.label: one for one in differences}
    parts = []
    if "options" in labels:
        parts.append(_OTHER_VENV if only_folder(labels["options"]) else _others(labels["options"]))
    if "PyOpenCL" in labels:
        parts.append(f"made by PyOpenCL {labels['PyOpenCL'].left}")
    return " and ".join(parts)


def told_folder(differences: Sequence[Difference]) -> bool:
    """Whether the folder of PyOpenCL's own headers is all that differs of the options, or nothing does."""
    options = next((one for one in differences if one.label == "options"), None)
    return options is None or only_folder(options)


def only_folder(options: Difference) -> bool:
    """Whether two lists of options differ in the folder of PyOpenCL's own headers alone."""
    left, right = (_split(text or "") for text in (options.left, options.right))
    if len(left) != len(right):
        return False
    return all(
        one == other or (one.endswith("/pyopencl/cl") and other.endswith("/pyopencl/cl"))
        for one, other in zip(left, right, strict=True)
    )


def _others(options: Difference) -> str:
    """What a stored entry has of other options than are wanted, as a clause."""
    stored, wanted = (Counter(_split(text or "")) for text in (options.left, options.right))
    more, less = (" ".join((one - other).elements()) for one, other in ((stored, wanted), (wanted, stored)))
    told = [*([f"with {more}"] if more else []), *([f"without {less}"] if less else [])]
    return f"with other options ({', '.join(told) or 'the same in another order'})"


def _split(options: str) -> list[str]:
    return [part.strip('"') for part in options.split(" ")]


def unsolved(logged: str | None, differences: Sequence[Difference], *, asked: bool) -> str:
    """What differs where no inputs that were tried give the key, as a clause."""
    if differences:
        return f"{_others(differences[0])}, and perhaps for another device, driver or PyOpenCL"
    if logged is not None and asked:
        return "with these options: device, driver or PyOpenCL differ, which an entry does not store"
    return "options, device, driver or PyOpenCL differ, which an entry does not store"


def times(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count} times"


def python(path: Path) -> str:
    """The Python of a folder, as the end of a clause; empty where it names none."""
    python = names.python_of(path.name)
    return f" of Python {python}" if python else ""
