"""Parameter types, and the options that name sources and builds.

Owns completion, which never probes: it reads the results of the last probe and the cache.

Also reads the files and the programs that people name, with the options for their builds.
"""

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from gpucache.cli.usage import VerbCommand
from gpucache.errors import GpucacheError, SourceError, UsageError
from gpucache.host import os_errors
from gpucache.model import Checks, Language

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gpucache.manifest import ProgramSpec

_LARGEST_EXTENT = 99_999
_NAMING = (Language.CUDA_CPP, Language.HIP_CPP)
_EMPTY = "it is empty; give a name, or leave it out"

F = TypeVar("F", bound=Callable[..., Any])


class Parsed(click.ParamType[Any]):
    """A value that ``read`` makes of text; it raises ValueError or GpucacheError for a text that is none."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except (GpucacheError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _size(text: str) -> int:
    """Bytes. A number without a unit is refused: 20 is rarely 20 bytes."""
    from gpucache.units import parse_size

    return parse_size(text, unit=True)


def _age(text: str) -> int:
    from gpucache.units import parse_age_ns

    return parse_age_ns(text)


def _local_size(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"0*[1-9]\d{0,99}(x0*[1-9]\d{0,99}){0,2}", text):
        raise ValueError(f"{text!r} is not a local size; write one to three numbers, such as 64 or 16x16")
    extents = tuple(int(extent) for extent in text.split("x"))
    if max(extents) > _LARGEST_EXTENT:
        raise ValueError(f"{max(extents)} is too large; no device takes more than {_LARGEST_EXTENT}")
    return extents


def _constant(text: str) -> str:
    """A specialization constant such as 3=u32:64, as its option."""
    from gpucache.payload.spirv import CONSTANT, read_constant

    return text if text.startswith(CONSTANT) else read_constant(text)


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"{text!r} is not a part; write one from 1/N to N/N, such as 3/8")
    return int(match[1]), int(match[2])


def _pin(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", text):
        raise ValueError(f"{text!r} is no name of lower-case letters, digits and ._-")
    return text


PIN = Parsed("name", _pin)
SIZE, AGE, PART = Parsed("size", _size), Parsed("age", _age), Parsed("part", _part)
_LOCAL_SIZE, _CONSTANT = Parsed("local size", _local_size), Parsed("specialization constant", _constant)


class Number(click.FloatRange):
    """A number above or from a bound. ``nan`` and ``inf`` are refused, as they break every comparison."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return float(_ranged(self, float, value, param, ctx))


class Count(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return int(_ranged(self, int, value, param, ctx))


def _ranged(kind: Any, read: Callable[[Any], Any], value: Any, *place: Any) -> Any:
    least, most = kind.min, kind.max
    bounds = f"above {least:g}" if kind.min_open else f"of at least {least:g}"
    bounds = bounds if most is None else f"from {least} to {most}"
    try:
        number = read(value)
        fits = math.isfinite(number) and (number > least if kind.min_open else number >= least)
    except (ValueError, OverflowError):
        fits = False
    if not fits or (most is not None and number > most):
        kind.fail(f"{value!r} is not a {'whole ' if read is int else ''}number {bounds}", *place)
    return number


class Name(click.ParamType[str]):
    """A name. An empty one is refused: it comes from an unset variable of a script and means nothing."""

    paths: tuple[str, ...] = ()
    """``file`` or ``dir`` if a path may be given as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail(_EMPTY, param, ctx)
        return str(value)

    def names(self, ctx: click.Context, typed: str) -> Iterable[str]:  # noqa: ARG002 - of subclasses
        return ()

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - Click's signature
        incomplete: str,
    ) -> "list[CompletionItem]":
        """The names that begin with the typed text; without any, paths if a path may be given."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name) for name in self.names(ctx, incomplete) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type=kind) for kind in self.paths]


class StoreName(Name):
    """The URL or the directory of a store."""

    name = "url"
    paths = ("dir",)


class PathName(click.Path):
    """A path. An empty one is refused, as a name is: it would mean the current directory."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, readable=False, **options)  # the reader says why it cannot read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not os.fspath(value):
            self.fail(_EMPTY, param, ctx)
        from gpucache.units import printable

        shown = printable(os.fspath(value), None)
        try:
            # Click calls every path absent that this user cannot see.
            is_folder = stat.S_ISDIR(os.stat(value).st_mode)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError, ValueError):
            if self.exists:
                self.fail(f"there is no {self.name} {shown}; check its path", param, ctx)
        except OSError as error:
            if self.exists:
                self.fail(os_errors.unreadable(value, error, "check its path").message, param, ctx)
        else:
            if is_folder and not self.dir_okay:
                self.fail(f"{shown} is a directory, not a file", param, ctx)
            if not (is_folder or self.file_okay):
                self.fail(f"{shown} is a file, not a directory", param, ctx)
        return cast("Path", super().convert(value, param, ctx))


class TargetName(Name):
    """A target, completed from the last probe."""

    name = "target"

    def names(self, ctx: click.Context, typed: str) -> Iterable[str]:  # noqa: ARG002 - all are few
        from gpucache.probe.remembered import load_last

        root = _root(ctx)
        return () if root is None else map(str, load_last(root))


class EntryName(Name):
    """A program, a target or the beginning of a key, completed from the cache."""

    name = "what"

    def names(self, ctx: click.Context, typed: str) -> Iterable[str]:
        """Programs with a history, and keys once two digits are typed."""
        from gpucache.engine.prepare import ALIAS
        from gpucache.store.directory import DirectoryStore
        from gpucache.store.interface import UNREADABLE

        root = _root(ctx)
        if root is None:
            return
        store = DirectoryStore(root, writable=False)
        yield from (
            name for name in store.history.programs() if not name.startswith(ALIAS) and name != UNREADABLE
        )
        if re.fullmatch(r"[0-9a-f]{2,}", typed):
            yield from (key.short for key in islice(store.find(typed), 50))


class BuildCommand(VerbCommand):
    """A command with build options, which it gets as ``named``: everything given about programs and builds.

    ``-D`` and ``--option`` reach the compiler in the order given.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, put every define among the options at its place, and gather them all."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        rest = super().parse_args(ctx, args)
        defines = ctx.params.pop("defines", None) or ()
        given = {
            "defines": (f"-D{define}" for define in defines),
            "options": iter(ctx.params.get("options") or ()),
        }
        names = [param.name for param in order if param.name in given]
        ctx.params["options"] = tuple(option for name in names for option in islice(given[name], 1))
        fields = [name for name in Named._fields if name in ctx.params]
        ctx.params["named"] = Named(**{name: ctx.params.pop(name) for name in fields})
        return rest


def field(option: str, text: str, remedy: str) -> tuple[str, str]:
    """The two sides of ``FIELD=VALUE``; raises UsageError, whose sentence ends in the remedy."""
    label, equals, value = text.partition("=")
    if not equals or not label:
        raise UsageError(f"{option} {text!r} is not FIELD=VALUE{remedy}")
    return label, value


def valued(names: str, metavar: str, kind: click.ParamType[Any], told: str, **more: Any) -> Callable[[F], F]:
    """An option with a value: its names, the placeholder and the type of the value, and its help."""
    return click.option(*names.split(), metavar=metavar, type=kind, help=told, **more)


def flag(names: str, told: str) -> Callable[[F], F]:
    return click.option(*names.split(), is_flag=True, help=told)


def source_options(function: F) -> F:
    """Add the arguments and options that name programs and how they are built."""
    options = (
        click.argument("sources", metavar="[SOURCE... | -- COMMAND...]", nargs=-1, type=PathName()),
        manifest_option,
        click.option("--example", is_flag=True, help="The programs that come with gpucache."),
    )  # fmt: skip
    function = build_options(function)
    for option in reversed(options):
        function = option(function)
    return function


def manifest_option(function: F) -> F:
    return click.option(
        "--manifest", metavar="FILE", type=PathName(dir_okay=False),
        help="A manifest; see gpucache-manifest(5).",
    )(function)  # fmt: skip


def build_options(function: F) -> F:
    options = (
        click.option(
            "--target", "targets", metavar="T", multiple=True, type=TargetName(),
            help="Such as cuda:sm_90 or opencl:pocl; repeatable.\f"
            "A target, such as cuda:sm_90, or opencl:pocl for the newest PoCL that can compile; "
            "repeatable.",
        ),
        click.option(
            "-I", "include_dirs", metavar="DIR", multiple=True,
            type=PathName(exists=True, file_okay=False),
            help="A directory to search for headers.",
        ),
        click.option("-D", "defines", metavar="N[=V]", multiple=True, help="A macro to define."),
        click.option(
            "--option", "options", metavar="O", multiple=True,
            help="An option of the compiler: --option=-cl-mad-enable.",
        ),
        click.option(
            "--name-expression", "name_expressions", metavar="E", multiple=True,
            help="A C++ name, such as 'scale<float>'; repeatable.\f"
            "A C++ name that CUDA and HIP programs request, such as 'scale<float>'; repeatable.",
        ),
        click.option(
            "--spec-constant", "spec_constants", metavar="ID=T:V", multiple=True, type=_CONSTANT,
            help="A constant of SPIR-V: 3=u32:64; repeatable.\f"
            "A specialization constant of SPIR-V modules, such as 3=u32:64; repeatable.",
        ),
        click.option(
            "--local-size", "local_sizes", metavar="N[xN[xN]]", multiple=True, type=_LOCAL_SIZE,
            help="A local size of launches, for PoCL.\f"
            "A local size of the programs' launches; for compilers that build at first launch (PoCL).",
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def checks_option(function: F) -> F:
    return click.option(
        "--checks", metavar="MODE", type=click.Choice([mode.value for mode in Checks]),
        help="Checks inside kernels: none, sync or async.\f"
        "Compile the checks of gpucache/check.h into kernels: none, sync (the host looks after every "
        "launch) or async (it looks on request).",
    )(function)  # fmt: skip


def profile_option(function: F) -> F:
    return click.option(
        "--device-profile", "profile", metavar="FILE", type=PathName(dir_okay=False),
        help="Ask for another machine.\f"
        "Check for another machine, from a profile written by 'gpucache devices --save'.",
    )(function)  # fmt: skip


def _root(ctx: click.Context) -> Path | None:
    import os

    from gpucache.cli.globals import Globals
    from gpucache.settings import read_settings

    value = ctx.find_root().obj
    try:
        return read_settings(os.environ, root=value.root if isinstance(value, Globals) else None).root
    except GpucacheError:
        return None


NOTHING_NAMED = (
    "no program is named; give sources or directories, --manifest FILE, or --example for the programs "
    "that come with gpucache"
)


class Named(NamedTuple):
    """The programs and the build options of the command line."""

    sources: tuple[Path, ...] = ()
    manifest: Path | None = None
    example: bool = False
    include_dirs: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()
    """Defines among them, in the order given."""
    name_expressions: tuple[str, ...] = ()
    spec_constants: tuple[str, ...] = ()
    """The specialization constants as options, which only modules have."""
    local_sizes: tuple[tuple[int, ...], ...] = ()
    checks: str | None = None

    @property
    def anything(self) -> bool:
        return bool(self.sources or self.manifest or self.example or self.builds)

    @property
    def builds(self) -> bool:
        of_one = self.name_expressions or self.spec_constants
        return bool(self.include_dirs or self.options or of_one or self.local_sizes or self.checks)


def read_programs(named: Named) -> "list[ProgramSpec]":
    """Programs with their sources read; raises UsageError, SourceError or ManifestError."""
    from gpucache.manifest import read_manifest

    ways = [bool(named.sources), named.manifest is not None, named.example]
    if sum(ways) > 1:
        raise UsageError("sources, --manifest and --example do not go together; give one of them")
    if not any(ways):
        raise UsageError(NOTHING_NAMED)
    if named.sources:
        specs = _from_sources(named.sources)
    elif named.manifest is not None:
        specs = read_manifest(named.manifest)
    else:
        from gpucache.examples import manifest_path

        specs = read_manifest(manifest_path())
    if named.name_expressions and not any(spec.program.language in _NAMING for spec in specs):
        raise UsageError("--name-expression is for CUDA and HIP programs, and none is given; leave it out")
    if named.spec_constants and not any(spec.program.language is Language.SPIR_V for spec in specs):
        raise UsageError("--spec-constant is for SPIR-V modules, and none is given; leave it out")
    return [_with(spec, named) for spec in specs]


def _from_sources(sources: Sequence[Path]) -> "list[ProgramSpec]":
    from gpucache.manifest import KNOWN, LANGUAGES, program_at
    from gpucache.sources.disk import discover

    specs = []
    taken: set[str] = set()
    for source in sources:
        for path in discover([source]):
            if path.suffix not in LANGUAGES:
                remedy = "leave it out"
                if path.suffix == ".py":
                    build = "'gpucache warm --check --recording recording' says what would miss"
                    remedy = f"run 'gpucache record -o recording -- python {path}', then {build}"
                raise SourceError(f"the source {str(path)!r} is not {KNOWN}; {remedy}")
            name = path.relative_to(source).as_posix() if source.is_dir() else path.name
            name = path.as_posix() if name in taken else name  # two files are two programs
            taken.add(name)
            spec = program_at(path.absolute(), name, LANGUAGES[path.suffix])
            own = str(path.absolute().parent)
            specs.append(spec._replace(include_dirs=(own,), directory=os.getcwd()))  # noqa: PTH109
    return specs


def _with(spec: "ProgramSpec", named: Named) -> "ProgramSpec":
    folders = (os.fspath(folder.absolute()) for folder in named.include_dirs)
    names = named.name_expressions if spec.program.language in _NAMING else ()
    expressions = (*spec.name_expressions, *names)
    constants = named.spec_constants if spec.program.language is Language.SPIR_V else ()
    return spec._replace(
        options=(*spec.options, *_absolute(named.options), *constants),
        include_dirs=tuple(dict.fromkeys((*spec.include_dirs, *folders))),
        name_expressions=tuple(dict.fromkeys(expressions)),
        local_sizes=tuple(dict.fromkeys((*spec.local_sizes, *named.local_sizes))),
        checks=Checks(named.checks or spec.checks),
    )


def _absolute(options: Sequence[str]) -> tuple[str, ...]:
    """Options in which relative include directories are made absolute, from the current directory."""
    from gpucache.backends.options import absolute

    here = os.getcwd()  # noqa: PTH109 - text in, text out
    return tuple(
        f"-I{absolute(option[2:].strip(), here)}" if option.startswith("-I") and len(option) > 2 else option
        for option in options
    )


LIMIT_BYTES = 512 << 20


def read_whole(path: Path) -> bytes:
    """Read a regular file of at most 512 MiB; raises UsageError for anything else, and OSError."""
    # Without O_NONBLOCK opening a FIFO would wait for its other end.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a regular file; save its content to a file first")
        if status.st_size > LIMIT_BYTES:
            raise UsageError(f"{path} has more than the 512 MiB that are read; name a smaller file")
        return file.read(LIMIT_BYTES + 1)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """A context in which a file is written; raises UsageError or SystemRefusedError if that fails."""
    try:
        yield
    except OSError as error:
        raise os_errors.unwritable(file, error, "name another file") from None


def require_writable(file: Path) -> None:
    """Raise UsageError for a file that could not be written in the end, before anything is done."""
    new = not file.exists()
    if not new and not file.is_file():
        return  # opening a pipe twice would end its reader
    with writing(file):
        with file.open("ab"):  # its present content stays until the end
            pass
        if new:
            file.unlink()


def require_drawable(option: str, file: Path, suffixes: Sequence[str]) -> None:
    """Raise UsageError for a file that cannot be written, or whose suffix is none of the formats."""
    from gpucache.answers.bench_export import PLOTS, can_plot

    if file.suffix.lower() not in suffixes:
        raise UsageError(
            f"{option} writes {', '.join(suffixes[:-1])} or {suffixes[-1]}, by the ending; "
            f"{str(file)!r} has another"
        )
    if file.suffix.lower() in PLOTS and not can_plot():
        raise UsageError(f"{option} needs a library for a plot; install it with: pip install matplotlib")
    require_writable(file)
