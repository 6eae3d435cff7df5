"""The ways in which the same build options can have been given to PyOpenCL. Pure.

Its key holds the options joined by spaces, as they were given: ``-DN=4`` and ``-D N=4`` have two keys, and
so do quoted and plain folders. A text is split as a shell would.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product

Options = tuple[str, ...]
_TAKING = ("-D", "-U", "-I")
"""Options whose argument may stand behind them or by itself."""
_EACH_ALONE = 5
"""Up to so many of them every mixture of the two forms is tried; of more all joined and all split."""


def readings(given: Sequence[str]) -> tuple[Options, ...]:
    """Every list of options that a program may have given, the one that was asked for first."""
    found = dict.fromkeys(_as_given(tuple(given)))
    for one in _quoted(tuple(given)):
        found.update(dict.fromkeys(_mixtures(one)))
    return tuple(found)


def _as_given(given: Options) -> Iterator[Options]:
    if len(given) == 1:
        with suppress(ValueError):  # an open quote, which a list of options may have
            yield tuple(shlex.split(given[0]))
    yield given


def _quoted(given: Options) -> Iterator[Options]:
    """The words of all of it, with quotes where a folder has spaces, and without."""
    try:
        words = tuple(word for text in given for word in shlex.split(text))
        kept = tuple(word for text in given for word in shlex.split(text, posix=False))
    except ValueError:
        return
    yield words
    yield kept
    yield tuple(f'"{word}"' if " " in word else word for word in words)


def _mixtures(words: Options) -> Iterator[Options]:
    parts = list(_parts(words))
    forms = [_forms(part) for part in parts]
    if sum(len(form) > 1 for form in forms) <= _EACH_ALONE:
        yield from (tuple(word for form in mixture for word in form) for mixture in product(*forms))
        return
    for index in (0, -1):
        yield tuple(word for form in forms for word in form[index])


def _parts(words: Options) -> Iterator[Options]:
    """The words by option: an option that takes an argument with it, in two words where they are."""
    rest = iter(words)
    for word in rest:
        argument = next(rest, None) if word in _TAKING else None
        yield (word,) if argument is None else (word, argument)


def _forms(part: Options) -> tuple[Options, ...]:
    """An option with its argument in one word, and in two; or as it is."""
    flag, argument = part if len(part) == 2 else (part[0][:2], part[0][2:])
    if flag not in _TAKING or not argument:
        return (part,)
    return ((flag + argument,), (flag, argument))
