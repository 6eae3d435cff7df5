"""Differences between key fields in words, and how much each one weighs. Pure.

Facts from the disk, such as a header that shadows another, are passed in.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpucache.keys import (
    FOLDER,
    NOT_FOUND,
    RESOLUTION,
    SEARCHED,
    SOURCE_NAME,
    Difference,
    header_of,
    variable_of,
)

# Differences that make it another program or another machine weigh most. An update of a driver changes
# several fields at once, so each of these weighs little.
_WEIGHTS = {
    "language": 50,
    "source": 8,
    "platform name": 20,
    "platform vendor": 20,
    "device name": 20,
    "device vendor": 20,
    "architecture": 20,
    "artifact kind": 10,
    RESOLUTION: 0,
    "option": 4,  # and one more for every further option
    "local size": 0,
    "name expression": 4,
    "checks": 4,
    SOURCE_NAME: 3,
}
_OTHER = 2
_VERSIONS = {
    "driver version": "driver",
    "platform version": "platform version",
    "device version": "device version",
    "NVRTC version": "NVRTC",
}
_BUILDS = {
    "NVRTC build id": "another build of NVRTC",
    "NVRTC builtins build id": "another build of NVRTC's builtins library",
    "driver UUID": "another build of the driver",
    "compiler build": "another build of the compiler under the same version",
    "compiler built-ins": "the compiler's own headers or built-in functions changed",
    RESOLUTION: "the same headers are reached another way",
    "source": "the source changed",
    "CPU features": "the CPU has other instruction sets",
}
_DEFINE = re.compile(r"-D([^=]+)(?:=(.*))?", re.DOTALL)


def weight(differences: Iterable[Difference]) -> int:
    """How far apart two builds are: the sum of the weights of their differences, more for more options.

    The same options in another order are the lightest difference.
    """
    return sum(
        _WEIGHTS.get(item.label, _OTHER) if item.label != "option" else _options_weight(item)
        for item in differences
    )


def least_options_weight(before: Sequence[str], now: Sequence[str]) -> int:
    """A lower bound of the weight of two lists of options, which takes less time than the weight itself."""
    if before == now:
        return 0
    had, has = {*before}, {*now}
    changed = max(len(had - has), len(has - had))
    return _WEIGHTS["option"] - 1 + changed if changed else 1


def _options_weight(item: Difference) -> int:
    before, now = item.values()
    return 1 if Counter(before) == Counter(now) else _WEIGHTS["option"] - 1 + len(list(_options(item)))


def phrases(differences: Sequence[Difference], shadows: Mapping[str, str] | None = None) -> list[str]:
    """Phrases for the differences, the heaviest first, without those that follow from another.

    ``shadows`` maps a header's name to the sentence that says which file now shadows which.
    """
    if way := _other_way(differences):
        return [way]
    # The resolution changes with every header, so it is news only alone.
    known = any(header_of(item.label) for item in differences)
    told = [item for item in told_once(differences) if not (known and item.label == RESOLUTION)]
    told.sort(key=lambda item: -_WEIGHTS.get(item.label, _OTHER))
    return [phrase for item in told for phrase in _phrase(item, shadows or {})]


def _other_way(differences: Sequence[Difference]) -> str:
    """A phrase if only one of two builds was requested by a program itself; else empty.

    The options and kinds of such builds differ in any case.
    """
    if any(item.label == "language" for item in differences):
        return ""  # another language's compiler, and nothing of that can be compared
    name = next((item for item in differences if item.label == SOURCE_NAME), None)
    if name is not None and name.right is None:
        return "it was kept for a program that calls NVRTC itself under gpucache run, and has keys of its own"
    options = next((item for item in differences if item.label == "option"), None)
    # Only such a program's options name the architecture; entries without its source's name are older.
    if name is None or name.left is not None or options is None or _names_target(options.values()[0]):
        return ""
    return (
        "it was kept by warm or for the library, and a program that calls NVRTC itself has keys of its own: "
        "'gpucache record' writes down what it asks for, and 'gpucache warm --recording' builds that"
    )


def _names_target(options: Iterable[str]) -> bool:
    return any(option.startswith("-arch=") for option in options)


def told_once(differences: Sequence[Difference]) -> list[Difference]:
    """The differences, each header once: a macro may name the same header with more directories as well."""
    short = {(item.left, item.right, header_of(item.label)) for item in differences}

    def is_repeated(item: Difference) -> bool:
        name = header_of(item.label) or ""
        ends = (name[place + 1 :] for place, letter in enumerate(name) if letter == "/")
        return any((item.left, item.right, end) in short for end in ends)

    return [item for item in differences if not is_repeated(item)]


def _phrase(item: Difference, shadows: Mapping[str, str]) -> Iterable[str]:
    if header := header_of(item.label):
        yield _header(header, item, shadows)
    elif item.label == SEARCHED:
        yield "it holds paths and was built in other directories"
    elif item.label == "option":
        yield from _options(item)
    elif item.label in _VERSIONS:
        yield f"{_VERSIONS[item.label]} {_arrow(item)}"
    elif item.label in _BUILDS:
        yield _BUILDS[item.label]
    elif variable := variable_of(item.label):
        yield _variable(variable, item)
    elif item.label == "local size":
        yield "an older gpucache had local sizes in the key, which no longer belong there"
    elif item.label in ("device name", "platform name"):
        yield f"another {item.label.removesuffix(' name')}: {_arrow(item)}"
    else:
        yield _named(item) or f"{item.label} {_arrow(item)}"


def _named(item: Difference) -> str:
    """The difference of a name or directory that a program chose; empty for any other."""
    if item.label == SOURCE_NAME and item.left is None:
        return (
            "it was kept by an older gpucache, whose keys lack the name that the program gives its source; "
            "it is compiled once more"
        )
    if item.label == SOURCE_NAME:
        return f"the program calls its source {item.right}, which it called {item.left}"
    if item.label == FOLDER and item.left is not None:
        return f"it holds the current directory, which was {item.left}"
    return ""


def _header(name: str, item: Difference, shadows: Mapping[str, str]) -> str:
    if name in shadows:
        return shadows[name]
    if item.left is None:
        return f"it now includes {name}"
    if item.right is None:
        return f"it no longer includes {name}"
    if item.left == NOT_FOUND:
        return f"{name} now exists where it was not found before"
    if item.right == NOT_FOUND:
        return f"{name} is no longer found"
    return f"the header {name} changed"


def _options(item: Difference) -> Iterable[str]:
    left, right = item.values()
    before, now = Counter(left), Counter(right)
    gone = [option for option in before if option not in now]
    new = [option for option in now if option not in before]
    renewed = {}
    for option in list(gone):
        match = next((other for other in new if _macro(other) and _macro(other) == _macro(option)), None)
        if match is not None:
            gone.remove(option)
            new.remove(match)
            renewed[option] = match
            yield f"the define {_macro(option)}: {_value(option)} -> {_value(match)}"
    yield from (f"the option {option} is gone" for option in gone)
    yield from (f"the option {option} is new" for option in new)
    for option in before & now:
        if before[option] != now[option]:
            yield f"the option {option} is given {_times(now[option])} instead of {_times(before[option])}"
    stayed = [renewed.get(option, option) for option in left]
    if _on_both(stayed, right) != _on_both(right, stayed):
        yield "the options stand in another order"


def _on_both(options: Sequence[str], others: Sequence[str]) -> list[str]:
    """The options that are in both sequences equally often, in order."""
    count, other_count = Counter(options), Counter(others)
    return [option for option in options if count[option] == other_count[option]]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _macro(option: str) -> str:
    match = _DEFINE.fullmatch(option)
    return match[1] if match else ""


def _value(option: str) -> str:
    match = _DEFINE.fullmatch(option)
    if match is None:
        return option
    return "(no value)" if match[2] is None else match[2] or "(empty)"


def _variable(name: str, item: Difference) -> str:
    if item.left is None:
        return f"the environment variable {name} is now set to {item.right or '(empty)'}"
    if item.right is None:
        return f"the environment variable {name} is no longer set (it was {item.left or '(empty)'})"
    return f"the environment variable {name}: {_arrow(item)}"


def _arrow(item: Difference) -> str:
    left, right = ("none" if value is None else value or "(empty)" for value in (item.left, item.right))
    return f"{left} -> {right}"
