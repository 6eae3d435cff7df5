"""Build options as a list of tokens, read the way compilers' own parsers do. Pure.

Owns the splitting, joining and classing of options that both backends share. Must not know which
options a given compiler has.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpucache.errors import OptionError

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# White space that one compiler splits at and another takes as part of an option, and what ends a C string.
_ODD = re.compile(r"[^\S ]|\0")


@dataclass(frozen=True, slots=True)
class Spelling:
    """One option that takes a value: its canonical form and every way to write it."""

    canonical: str
    """What the value is put behind, such as ``-D``."""
    joined: tuple[str, ...]
    """Prefixes with the value in the same token, longest first."""
    apart: tuple[str, ...]
    """Tokens whose value is the next token."""
    strips: bool = True
    """Whether white space around the value is no part of it."""


def split(options: str | Sequence[str]) -> tuple[str, ...]:
    """Options as tokens: a string is split as a shell would, a sequence is taken as it is."""
    if not isinstance(options, str):
        return tuple(options)
    try:
        return tuple(shlex.split(options))
    except ValueError as error:
        raise OptionError(f"the build options {options!r} do not read ({error}); close the quote") from None


def trimmed(tokens: Sequence[str]) -> tuple[str, ...]:
    """Tokens without blanks around them; raises OptionError for those that compilers read differently."""
    for token in tokens:
        if _ODD.search(token):
            raise OptionError(
                f"the build option {token!r} holds white space or a zero byte that compilers read "
                "differently; write blanks"
            )
    return tuple(token.strip(" ") for token in tokens)


def read(tokens: Sequence[str], spellings: Iterable[Spelling]) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    """Canonical option, value, and the tokens it was written as; one without a spelling is itself and ''."""
    known = tuple(spellings)
    rest = iter(tokens)
    for token in rest:
        found = _match(token, known)
        if found is None:
            yield token, "", (token,)
            continue
        spelling, value = found
        written: tuple[str, ...] = (token,)
        if value is None:
            value = next(rest, None)
            if value is None:
                raise OptionError(
                    f"the build option {token!r} lacks its value; write {spelling.canonical}VALUE"
                )
            written = (token, value)
        yield spelling.canonical, value.strip() if spelling.strips else value, written


def with_value(definition: str) -> str:
    """What ``-D`` defines, with the 1 that a name alone is defined as."""
    return f"{definition}=1" if _NAME.fullmatch(definition) else definition


def _match(token: str, spellings: tuple[Spelling, ...]) -> tuple[Spelling, str | None] | None:
    for spelling in spellings:
        if token in spelling.apart:
            return spelling, None
        for prefix in spelling.joined:
            if token.startswith(prefix) and len(token) > len(prefix):
                return spelling, token[len(prefix) :]
    return None


def absolute(directory: str, cwd: str) -> str:
    """An include directory meant from ``cwd``, otherwise as given: ``link/..`` is no place text can tell."""
    return os.path.join(cwd, directory)  # noqa: PTH118 - text in, text out


def environment(
    environ: Mapping[str, str], prefixes: tuple[str, ...], without: str
) -> tuple[tuple[str, str], ...]:
    """The variables that are set and reach a compiler: those with a prefix and not matching ``without``."""
    harmless = re.compile(without)
    return tuple(
        (name, environ[name])
        for name in sorted(environ)
        if name.startswith(prefixes) and not harmless.fullmatch(name)
    )
