"""Programs named on the command line, read with the options for their builds."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.errors import SourceError, UsageError
from gpucache.model import Checks, Language

if TYPE_CHECKING:
    from gpucache.manifest import ProgramSpec

NOTHING_NAMED = (
    "no program is named; give sources or folders, --manifest FILE, or --example for the programs "
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
    local_sizes: tuple[tuple[int, ...], ...] = ()
    checks: str | None = None

    @property
    def anything(self) -> bool:
        """Whether any program or build was named at all."""
        return bool(self.sources or self.manifest or self.example or self.builds)

    @property
    def builds(self) -> bool:
        """Whether any option for building programs was given."""
        return bool(
            self.include_dirs or self.options or self.name_expressions or self.local_sizes or self.checks
        )


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
    if named.name_expressions and not any(spec.program.language is Language.CUDA_CPP for spec in specs):
        raise UsageError("--name-expression names what CUDA programs ask for, and none is here; leave it out")
    return [_with(spec, named) for spec in specs]


def _from_sources(sources: Sequence[Path]) -> "list[ProgramSpec]":
    from gpucache.manifest import LANGUAGES, program_at
    from gpucache.sources.discover import discover

    specs = []
    taken: set[str] = set()
    for source in sources:
        for path in discover([source]):
            if path.suffix not in LANGUAGES:
                raise SourceError(
                    f"the source {str(path)!r} is neither OpenCL C (.cl) nor CUDA C++ (.cu); leave it out"
                )
            name = path.relative_to(source).as_posix() if source.is_dir() else path.name
            name = path.as_posix() if name in taken else name  # two files are two programs
            taken.add(name)
            spec = program_at(path.absolute(), name, LANGUAGES[path.suffix])
            own = str(path.absolute().parent)
            specs.append(spec._replace(include_dirs=(own,), directory=os.getcwd()))  # noqa: PTH109
    return specs


def _with(spec: "ProgramSpec", named: Named) -> "ProgramSpec":
    """A program with the additions of the command line."""
    folders = (os.fspath(folder.absolute()) for folder in named.include_dirs)
    cuda = spec.program.language is Language.CUDA_CPP
    expressions = (*spec.name_expressions, *named.name_expressions) if cuda else spec.name_expressions
    return spec._replace(
        options=(*spec.options, *_absolute(named.options)),
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
