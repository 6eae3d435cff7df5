"""Names of kernels as people read them, out of the names that C++ compilers write.

Source: the Itanium C++ ABI, section 5.1 (mangling). Only what is sure without following types is
read: the identifiers of a name and the first plain types of its template arguments. Any other name
stays as it is. Pure; must not know what a name belongs to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME_BYTES = 4096
_TYPES_SHOWN = 3
_TYPE_NAME = "_ZTS"
_FUNCTION = "_Z"
_WRAPPER = "__pf_kernel_wrapper"
"""What libsycl puts around a kernel whose range it rounds up; the kernel is its argument."""
_ANONYMOUS = "_GLOBAL__N_1"
_LENGTH = re.compile(r"[1-9][0-9]{0,3}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = {
    "a": "signed char", "b": "bool", "c": "char", "d": "double", "f": "float", "h": "unsigned char",
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "s": "short",
    "t": "unsigned short", "v": "void", "x": "long long", "y": "unsigned long long",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Prefix:
    """The identifiers a name begins with, and the text behind them."""

    identifiers: tuple[str, ...]
    rest: str


def readable(name: str) -> str:
    """A name for people; the name itself where it is none of C++, or not a simple one. Raises nothing."""
    if len(name) > _NAME_BYTES:
        return name
    for start, whole in ((_TYPE_NAME, True), (_FUNCTION, False)):
        if name.startswith(start):
            return _name(name.removeprefix(start), whole=whole) or name
    return name


def _name(text: str, *, whole: bool) -> str:
    """The name at the start of a text; empty where it is no simple one, or not all where it must be."""
    nested = text.startswith("N")
    found = _prefix(text.removeprefix("N"), many=nested)
    if not found.identifiers:
        return ""
    shown = "::".join("(anonymous)" if one == _ANONYMOUS else one for one in found.identifiers)
    if found.rest.startswith("I"):
        if found.identifiers[-1] == _WRAPPER:
            return _name(found.rest[1:], whole=False)
        inner = whole and not found.rest.endswith("EE" if nested else "E")  # a member of a template
        return "" if inner else f"{shown}<{_arguments(found.rest[1:])}>"
    if nested:
        closed = found.rest.startswith("E")
        return shown if closed and (found.rest == "E" or not whole) else ""
    return shown if not found.rest or not whole else ""


def _prefix(text: str, *, many: bool) -> _Prefix:
    found: list[str] = []
    if text.startswith("St"):
        found, text = ["std"], text[2:]
    while length := _LENGTH.match(text):
        end = length.end() + int(length[0])
        identifier = text[length.end() : end]
        if len(text) < end or _IDENTIFIER.fullmatch(identifier) is None:
            return _Prefix((), text)
        found.append(identifier)
        text = text[end:]
        if not many:
            break
    return _Prefix(tuple(found) if found != ["std"] else (), text)


def _arguments(text: str) -> str:
    """The first template arguments while they are plain types, and whether there are more."""
    known = list(_plain(text[:_TYPES_SHOWN]))
    more = [] if text[len(known) : len(known) + 1] == "E" else ["..."]
    return ", ".join([*known, *more])


def _plain(text: str) -> Iterator[str]:
    for letter in text:
        if letter not in _TYPES:
            return
        yield _TYPES[letter]
