"""Build options as a list of tokens, parsed as compilers parse them. Everything here is pure.

This module must not know which options a given compiler has.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, cast

from gpucache.errors import OptionError
from gpucache.host.environment import derived

LOADED = "@loaded"
"""The suffix of a variable's name for its value when the compiler was loaded, if that was different."""
_NAME = r"(?a:[A-Za-z_]\w*)"
# White space at which one compiler splits and which another takes as part of an option; and the end of a C
# string.
_ODD = r"[^\S ]|\0"


class Spelling(NamedTuple):
    """An option that takes a value: its canonical form and every way to write it."""

    canonical: str
    """The spelling in keys: the text before the value, such as ``-D``."""
    joined: tuple[str, ...]
    """Prefixes with the value in the same token, the longest first."""
    apart: tuple[str, ...]
    """Spellings whose value is the next token."""
    strips: bool = False
    """Whether blanks around a value in the same token are not part of it."""


class Variables(NamedTuple):
    """The variables that affect a compiler, as patterns: * matches any text and ? one character.

    A C library also reads these patterns, so they are not regular expressions.
    """

    reaching: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    """Variables among them that do not affect the compiled code."""

    def among(self, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The matching variables of an environment, sorted."""
        kept = derived(environ)
        known = kept.get(self)
        if known is None:
            reaching, harmless = _matcher(self.reaching), _matcher(self.harmless)
            named = [name for name in environ if reaching(name) and not harmless(name)]
            known = kept[self] = tuple((name, environ[name]) for name in sorted(named))
        return cast("tuple[tuple[str, str], ...]", known)


@cache
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """A function that matches names against patterns; uses a regular expression only for unusual ones."""
    plain = [one for one in patterns if not {*"*?["} & {*one.removesuffix("*")}]
    begun = tuple(one[:-1] for one in plain if one.endswith("*"))
    odd = tuple(one for one in patterns if one not in plain)

    def fits(name: str) -> object:
        return name.startswith(begun) or name in plain or (odd and _expression(odd)(name))

    return fits


@cache
def _expression(patterns: tuple[str, ...]) -> Callable[[str], object]:
    from fnmatch import translate

    return re.compile("|".join(map(translate, patterns))).match


def split(options: str | Sequence[str]) -> tuple[str, ...]:
    """Options as tokens: a string is split as a shell would, a sequence is taken as it is."""
    if not isinstance(options, str):
        return tuple(options)
    if not options:
        return ()
    import shlex  # most programs give no options

    try:
        return tuple(shlex.split(options))
    except ValueError as error:
        raise OptionError(f"the build options {options!r} are not valid ({error}); close the quote") from None


_OF_OPTIONS = (
    r"(?m)^(Command-line error|nvrtc: error: |Invalid build option|Unrecognized build options"
    r"|(error: )?<command line>:\d+:\d+: (?!warning|note))"
)
"""How NVRTC, PoCL and Intel's compiler begin the line of their log that refuses an option."""


def refused(name: str, log: str) -> str:
    """What a failed compile says first: the log of a compiler tells whether its options are at fault."""
    options = re.search(_OF_OPTIONS, log)
    return f"a build option of {name} is not valid" if options else f"{name} does not compile"


def trimmed(tokens: Sequence[str]) -> tuple[str, ...]:
    """Tokens without surrounding blanks; raises OptionError for a token that compilers read differently."""
    for token in tokens:
        if re.search(_ODD, token):
            raise OptionError(
                f"the build option {token!r} contains white space or a zero byte that compilers read "
                "differently; write blanks"
            )
    return tuple(token.strip(" ") for token in tokens)


def read(tokens: Sequence[str], spellings: Iterable[Spelling]) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    """The canonical form, the value and the written tokens of each option.

    An option without a spelling is its own canonical form with the value ''. Raises OptionError for a
    missing value.
    """
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
    """The definition that ``-D`` makes: a bare name is defined as 1."""
    return f"{definition}=1" if re.fullmatch(_NAME, definition) else definition


def _match(token: str, spellings: tuple[Spelling, ...]) -> tuple[Spelling, str | None] | None:
    for spelling in spellings:
        if token in spelling.apart:
            return spelling, None
        for prefix in spelling.joined:
            if token.startswith(prefix) and len(token) > len(prefix):
                return spelling, token[len(prefix) :]
    return None


def changed_since_loaded(reaching: Iterable[tuple[str, str]]) -> str | None:
    """Why a build is not cached if a variable changed after the compiler was loaded; None if none did."""
    for name, _ in reaching:
        if name.endswith(LOADED):
            return (
                f"the environment variable {name.removesuffix(LOADED)} was changed after the compiler was "
                "loaded, which may have read it before; set it before the program starts"
            )
    return None


def absolute(directory: str, cwd: str) -> str:
    """An include directory as seen from ``cwd``, not normalised: text cannot show where ``link/..`` leads."""
    return os.path.join(cwd, directory)  # noqa: PTH118 - text in, text out
