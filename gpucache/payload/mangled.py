"""Readable names of kernels, made from the names that C++ compilers write.

Source: the Itanium C++ ABI, section 5.1 (mangling). Only parts that need no types are read: the
identifiers of a name and the first plain types of its template arguments. Any other name stays as it is. A
complete demangler would be the wrong tool for names from a cache: a hostile name of 600 bytes expands to
terabytes of text, which kills the process in LLVM's demangler.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

_NAME_BYTES = 4096
_TYPES_SHOWN = 3
_TYPE_NAME = "_ZTS"
_FUNCTION = "_Z"
_WRAPPER = "__pf_kernel_wrapper"
"""The function that libsycl puts around a kernel whose range it rounds up; the kernel is its argument."""
_ANONYMOUS = "_GLOBAL__N_1"
_LENGTH = re.compile(r"[1-9][0-9]{0,3}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = {
    "a": "signed char", "b": "bool", "c": "char", "d": "double", "f": "float", "h": "unsigned char",
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "s": "short",
    "t": "unsigned short", "v": "void", "x": "long long", "y": "unsigned long long",
}  # fmt: skip


def readable(name: str) -> str:
    """A readable name; the name itself if it is not a C++ name or not a simple one. Raises nothing."""
    if len(name) > _NAME_BYTES:
        return name
    for start, whole in ((_TYPE_NAME, True), (_FUNCTION, False)):
        if name.startswith(start):
            return _name(name.removeprefix(start), whole=whole) or name
    return name


def _name(text: str, *, whole: bool) -> str:
    """The name at the start of a text; empty if it is not a simple one, or not all of a ``whole`` text."""
    nested = text.startswith("N")
    identifiers, rest = _prefix(text.removeprefix("N"), many=nested)
    if not identifiers:
        return ""
    shown = "::".join("(anonymous)" if one == _ANONYMOUS else one for one in identifiers)
    if rest.startswith("I"):
        if identifiers[-1] == _WRAPPER:
            return _name(rest[1:], whole=False)
        is_member = whole and not rest.endswith("EE" if nested else "E")  # a member of a template's instance
        return "" if is_member else f"{shown}<{_arguments(rest[1:])}>"
    if nested:
        return shown if rest.startswith("E") and (rest == "E" or not whole) else ""
    return shown if not rest or not whole else ""


def _prefix(text: str, *, many: bool) -> tuple[Sequence[str], str]:
    """The identifiers that a name begins with, one or as many as there are, and the text after them."""
    found: list[str] = []
    if text.startswith("St"):
        found, text = ["std"], text[2:]
    while length := _LENGTH.match(text):
        end = length.end() + int(length[0])
        identifier = text[length.end() : end]
        if len(text) < end or _IDENTIFIER.fullmatch(identifier) is None:
            return (), text
        found.append(identifier)
        text = text[end:]
        if not many:
            break
    return found if found != ["std"] else (), text


def _arguments(text: str) -> str:
    """The first template arguments as long as they are plain types, and whether there are more."""
    known = [_TYPES[letter] for letter in takewhile(_TYPES.__contains__, text[:_TYPES_SHOWN])]
    more = [] if text[len(known) : len(known) + 1] == "E" else ["..."]
    return ", ".join([*known, *more])
