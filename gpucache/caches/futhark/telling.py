"""Changes of options as words and as differences. Pure; must not know keys nor files."""

from collections.abc import Sequence

from gpucache.caches.futhark.asking import shown
from gpucache.caches.futhark.changes import Change, Edit, label_of
from gpucache.keys import Difference

_ALWAYS = (b"-I/usr/local/cuda/include", b"-I/usr/include")
_VARIABLES = "CUDA_HOME, CUDA_ROOT, CUDA_PATH"


def differences(change: Change) -> tuple[Difference, ...]:
    """One difference per option: left as the file was made, right as it is wanted."""
    return tuple(
        Difference(shown(label_of(edit.stored or edit.wanted or b"")), _text(edit.stored), _text(edit.wanted))
        for edit in change
    )


def told(change: Change, options: Sequence[bytes]) -> str:
    """A change as a clause: what the file was made with, and what is given now."""
    return " and ".join(_edit(edit, options) for edit in change)


def _edit(edit: Edit, options: Sequence[bytes]) -> str:
    stored, wanted = _text(edit.stored), _text(edit.wanted)
    if edit.stored is None:
        return _without(edit.wanted or b"", options)
    hint = _hint(edit.stored)
    if edit.wanted is None:
        return f"with {stored}, which is not given now{hint}"
    return f"with {stored} and not {wanted}{hint}"


def _without(option: bytes, options: Sequence[bytes]) -> str:
    text = shown(option)
    if option in _ALWAYS and options.count(option) == 1:
        folder = text.removeprefix("-I").removesuffix("/include")
        return f"with {text} twice, which cancels (one of {_VARIABLES} was {folder})"
    if options.count(option) > 1:
        return f"with {text} once more or once less than now"
    return f"without {text}{_hint(option)}"


def _hint(option: bytes) -> str:
    """Where a folder comes from."""
    return f" ({_VARIABLES} or HIP_PATH may differ)" if option.startswith(b"-I") else ""


def _text(option: bytes | None) -> str | None:
    return None if option is None else shown(option)
