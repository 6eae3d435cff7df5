"""The manifest: ``gpucache.toml`` read into programs with everything a build needs.

Owns the manifest's grammar: ``FIELDS`` names every field. Reads the manifest and the sources it names; knows
nothing of devices.
"""

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpucache.errors import ManifestError, UnreadSourceError
from gpucache.host import os_errors
from gpucache.model import Checks, Language, Program
from gpucache.payload.spirv import read_constant
from gpucache.sources.disk import load_program

LANGUAGES = {
    ".cl": Language.OPENCL_C,
    ".cu": Language.CUDA_CPP,
    ".hip": Language.HIP_CPP,
    ".spv": Language.SPIR_V,
}
KNOWN = "OpenCL C (.cl), SPIR-V (.spv), CUDA C++ (.cu) or HIP C++ (.hip)"
_MAX_BYTES = 4 * 1024 * 1024
_MAX_VARIANTS = 1024
_PATHS = ("include", "headers")
_MAX_ENTRIES = 200_000
"""How many files and directories are looked at for one pattern."""
_MAX_PARTS = 100
_HEADER = re.compile(r"\s*\[{1,2}\s*[\"']?(defaults|program)[\"']?\s*\]")


_SHARED = frozenset(["targets", "options", "defines", "include", "headers", "local_sizes", "checks"])
"""The fields that ``[defaults]`` may contain, too."""
FIELDS = _SHARED | frozenset(["source", "name", "variants", "spec_constants", "name_expressions"])
"""Every field with its meaning, as on the page gpucache-manifest(5)."""


class ProgramSpec(NamedTuple):
    """One program to warm, with the settings of its builds."""

    program: Program
    options: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    """The include directories as absolute paths, the source's first."""
    variants: tuple[tuple[tuple[str, str], ...], ...] = ((),)
    """The sets of defines to build with; one empty set if nothing varies."""
    targets: tuple[str, ...] = ()
    local_sizes: tuple[tuple[int, ...], ...] = ()
    name_expressions: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    checks: Checks = Checks.NONE
    directory: str = "/"
    """The base of relative names in options: the manifest's directory, or the current directory."""
    problem: str = ""
    """Why its source was not read, so that it cannot be built."""

    def variant(self, defines: Sequence[tuple[str, str]]) -> str:
        """The label of a build with some defines among a program's others, such as ``N=4, checks=async``."""
        told = [f"{name}={value}" for name, value in defines if self._varies(name)]
        mode = [] if self.checks is Checks.NONE else [f"checks={self.checks}"]
        return ", ".join(told + mode)

    def _varies(self, name: str) -> bool:
        return len({dict(variant).get(name) for variant in self.variants}) > 1


def program_at(path: Path, name: str, language: Language) -> ProgramSpec:
    """A program in a file, with its problem if that is too large; raises SourceError."""
    try:
        return ProgramSpec(load_program(path, name, language))
    except UnreadSourceError as error:
        return ProgramSpec(Program(name, language, b"", path), problem=error.message)


@dataclass(frozen=True, slots=True)
class _Table:
    values: Mapping[str, Any]
    path: Path
    text: str
    name: str = ""
    """``defaults`` or ``program``; empty for the whole document."""
    index: int = 0
    """The position of the table among those of its name."""

    def wrong(self, field: str, why: str) -> ManifestError:
        where = f"{self.path}, line {self._line(field)}, field {field!r}"
        return ManifestError(f"{where}: {why}")

    def _line(self, field: str) -> int:
        lines = self.text.split("\n")
        start, end = self._extent(lines)
        pattern = re.compile(rf"\s*(\[+\s*(\w+\s*\.\s*)?)?[\"']?{re.escape(field)}[\"']?\s*[=.\]]")
        return next((n for n in range(start, end) if pattern.match(lines[n - 1])), start)

    def _extent(self, lines: list[str]) -> tuple[int, int]:
        """First line of the table and the line after its last, counted from 1."""
        end = len(lines) + 1
        if not self.name:
            return 1, end
        headers = [(n, match[1]) for n, line in enumerate(lines, 1) if (match := _HEADER.match(line))]
        starts = [n for n, name in headers if name == self.name]
        if self.index >= len(starts):  # written inline, or only through [defaults.defines] and the like
            inline = re.compile(rf"\s*\[*\s*{self.name}\b")
            return next((n for n, line in enumerate(lines, 1) if inline.match(line)), 1), end
        start = starts[self.index]
        return start, next((n for n, _ in headers if n > start), end)


def read_manifest(path: Path) -> list[ProgramSpec]:
    """The programs of a manifest; raises ManifestError naming line and field, SourceError for a source.

    A manifest is TOML with an optional table ``[defaults]`` and one table ``[[program]]`` for each program;
    ``FIELDS`` are their fields.
    """
    import tomllib  # which sources that are named need not

    text = _read(path)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number or a nesting that Python cannot read
        raise ManifestError(f"{path} is not TOML: {error}") from None
    unknown = sorted(set(document) - {"defaults", "program"})
    whole = _Table(document, path, text)
    if unknown:
        raise whole.wrong(unknown[0], "there is no such table; a manifest has [defaults] and [[program]]")
    defaults = _Table(_table(whole, "defaults"), path, text, "defaults")
    tables = document.get("program", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise whole.wrong("program", "write each program as a separate table under [[program]]")
    if not tables:
        raise ManifestError(f"{path} names no program; add a [[program]] table with a source")
    _refuse_unknown(defaults, _SHARED)
    return [
        spec
        for index, table in enumerate(tables)
        for spec in _specs(_Table(table, path, text, "program", index), defaults)
    ]


def _specs(table: _Table, defaults: _Table) -> list[ProgramSpec]:
    _refuse_unknown(table, FIELDS)
    try:
        paths = _sources(table)
    except UnreadSourceError as error:
        pattern = Path(table.values["source"])
        program = Program(str(pattern), LANGUAGES.get(pattern.suffix, Language.OPENCL_C), b"")
        return [ProgramSpec(program, targets=_targets(table, defaults), problem=error.message)]
    name = table.values.get("name")
    if name is not None and not _is_text(name):
        raise table.wrong("name", "a name is text")
    if name is not None and len(paths) > 1:
        raise table.wrong(
            "name", f"one name cannot be used for the {len(paths)} files of the glob; leave it out"
        )
    folder = table.path.parent.absolute()
    defines = {**_defines(defaults), **_defines(table)}
    return [
        program_at(path, name or _relative(path, folder), _language(table, path))._replace(
            options=(*_texts(defaults, "options"), *_texts(table, "options"), *_constants(table, path)),
            include_dirs=_folders(path, table, defaults, folder),
            variants=_matrix(table, defines),
            targets=_targets(table, defaults),
            local_sizes=_sizes(table) or _sizes(defaults),
            name_expressions=_texts(table, "name_expressions"),
            directory=str(folder),
            checks=_checks(table) or _checks(defaults) or Checks.NONE,
            headers=tuple(
                str(folder / header) for source in (defaults, table) for header in _texts(source, "headers")
            ),
        )
        for path in paths
    ]


def _targets(table: _Table, defaults: _Table) -> tuple[str, ...]:
    return _texts(table, "targets") or _texts(defaults, "targets")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ManifestError(f"there is no manifest {path}; name one with --manifest FILE") from None
    except OSError as error:
        raise os_errors.unreadable(f"the manifest {path}", error, "name one with --manifest FILE") from None
    if len(data) > _MAX_BYTES:
        raise ManifestError(f"{path} is larger than a manifest can be (4 MiB); split it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ManifestError(f"{path} is not UTF-8 text; save it as UTF-8") from None


def _refuse_unknown(table: _Table, known: frozenset[str]) -> None:
    for field in table.values:
        if field not in known:
            raise table.wrong(field, f"there is no such field; the fields are {', '.join(sorted(known))}")


def _sources(table: _Table) -> list[Path]:
    source = table.values.get("source")
    if not _is_text(source) or not source:
        raise table.wrong("source", "every program needs a source: a file or a glob such as 'kernels/*.cl'")
    folder = table.path.parent.absolute()
    if not glob.has_magic(source):
        return [folder / source]
    anchor = Path(source).anchor
    parts = [part for part in source[len(anchor) :].replace(os.sep, "/").split("/") if part not in ("", ".")]
    parts = [one for one, run in itertools.groupby(parts) for _ in (("",) if one == "**" else run)]
    if len(parts) > _MAX_PARTS:
        raise table.wrong("source", f"a pattern has at most {_MAX_PARTS} parts")
    matches = set(_matches(table, anchor or str(folder), parts, itertools.count()))
    found = sorted(Path(match) for match in matches if os.path.isfile(match))  # noqa: PTH113 - never raises
    if not found:
        raise table.wrong("source", f"no file fits {source!r} below {folder}")
    return found


def _matches(table: _Table, folder: str, parts: Sequence[str], seen: Iterator[int]) -> Iterator[str]:
    """The paths below a directory that fit the parts of a pattern; ``**`` follows no link.

    ``seen`` counts the entries of directories. Raises UnreadSourceError if there are too many.
    """
    if not parts:
        yield folder
        return
    first, rest = parts[0], parts[1:]
    if not glob.has_magic(first):
        if os.path.lexists(path := os.path.join(folder, first)):  # noqa: PTH118 - of text, as are entries
            yield from _matches(table, path, rest, seen)
        return
    if first != "**":
        for entry in _listed(table, folder, seen):
            if fnmatch.fnmatch(entry.name, first) and entry.name.startswith(".") <= first.startswith("."):
                yield from _matches(table, entry.path, rest, seen)
        return
    folders = [folder]
    while folders:
        at = folders.pop()
        yield from _matches(table, at, rest or ["*"], seen)
        below = _listed(table, at, seen)
        folders += [
            one.path for one in below if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")
        ]


def _listed(table: _Table, folder: str, seen: Iterator[int]) -> list[os.DirEntry[str]]:
    """The entries of a directory; none if it cannot be listed."""
    entries = []
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if next(seen) >= _MAX_ENTRIES:
                why = f"more than {_MAX_ENTRIES:,} files may match; name the sources' directory"
                raise UnreadSourceError(str(table.wrong("source", why)))
            entries.append(entry)
    return entries


def _language(table: _Table, path: Path) -> Language:
    if path.suffix not in LANGUAGES:
        raise table.wrong("source", f"{path.name!r} is not {KNOWN}")
    return LANGUAGES[path.suffix]


def _folders(path: Path, table: _Table, defaults: _Table, folder: Path) -> tuple[str, ...]:
    named = [str(path.parent)]
    for source in (table, defaults):
        for include in _texts(source, "include"):
            if not os.path.isdir(folder / include):  # noqa: PTH112 - never raises
                raise source.wrong(
                    "include", f"{str(folder / include)!r} is not a directory; correct it, or create it"
                )
            named.append(str(folder / include))
    return tuple(dict.fromkeys(named))


def _table(table: _Table, field: str) -> dict[str, Any]:
    value = table.values.get(field, {})
    if not isinstance(value, dict):
        raise table.wrong(field, f"write it as a table, such as {field} = {{ N = 4 }}")
    return value


def _texts(table: _Table, field: str) -> tuple[str, ...]:
    value = table.values.get(field, [])
    if not isinstance(value, list) or not all(map(_is_text, value)):
        raise table.wrong(field, f'write it as a list of texts, such as {field} = ["..."]')
    if field in _PATHS and not all(value):
        raise table.wrong(field, "one of them is empty; leave it out")
    return tuple(value)


def _defines(table: _Table) -> dict[str, str]:
    return {name: _value(table, "defines", value) for name, value in _table(table, "defines").items()}


def _constants(table: _Table, path: Path) -> tuple[str, ...]:
    constants = _table(table, "spec_constants")
    try:
        options = tuple(read_constant(f"{number}={value}") for number, value in constants.items())
    except ValueError as error:
        raise table.wrong("spec_constants", str(error)) from None
    return options if _language(table, path) is Language.SPIR_V else ()


def _value(table: _Table, field: str, value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if _is_text(value) or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**64):
        return str(value)
    raise table.wrong(field, "a define is text or a number of at most 64 bits")


def _matrix(table: _Table, defines: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    axes = []
    for name, values in _table(table, "variants").items():
        if not isinstance(values, list) or not values:
            raise table.wrong("variants", f"give {name!r} a list of values, such as [64, 128]")
        axes.append([(name, _value(table, "variants", value)) for value in values])
    combinations = list(itertools.islice(itertools.product(*axes), _MAX_VARIANTS + 1))
    if len(combinations) > _MAX_VARIANTS:
        raise table.wrong("variants", f"these make more than {_MAX_VARIANTS} combinations; split the program")
    return tuple(tuple({**defines, **dict(chosen)}.items()) for chosen in combinations)


def _sizes(table: _Table) -> tuple[tuple[int, ...], ...]:
    sizes = table.values.get("local_sizes", [])
    if not isinstance(sizes, list) or not all(map(_is_size, sizes)):
        raise table.wrong(
            "local_sizes", "write it as a list of lists of one to three numbers, such as [[64], [16, 16]]"
        )
    return tuple(tuple(size) for size in sizes)


def _checks(table: _Table) -> Checks | None:
    mode = table.values.get("checks")
    if mode is None or mode in list(Checks):
        return None if mode is None else Checks(mode)
    raise table.wrong("checks", f"write one of {', '.join(Checks)}, as text")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_size(size: object) -> bool:
    return (
        isinstance(size, list)
        and 1 <= len(size) <= 3
        and all(type(extent) is int and 0 < extent <= 65_536 for extent in size)
    )


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
