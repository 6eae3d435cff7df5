"""Programs on disk: reads one source, or finds all sources below directories by their suffixes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucache.errors import SourceError, UnreadSourceError
from gpucache.model import Language, Program
from gpucache.units import format_size

SUFFIXES = (".cl", ".cu")
_LARGEST_BYTES = 64 * 1024**2


def load_program(path: Path, name: str, language: Language) -> Program:
    """Read one source; raises SourceError, and UnreadSourceError if it is over 64 MiB."""
    try:
        if path.is_dir():
            raise SourceError(f"{str(path)!r} is a folder; name a source file in it")
        if path.exists() and not path.is_file():
            raise SourceError(f"{str(path)!r} is not a regular file; save the source to a file first")
        with path.open("rb") as file:
            source = file.read(_LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise SourceError(f"there is no source {str(path)!r}; check its path") from None
    except (OSError, ValueError) as error:
        raise SourceError(
            f"the source {str(path)!r} cannot be read ({_reason(error)}); check its path and permissions"
        ) from None
    if len(source) > _LARGEST_BYTES:
        raise UnreadSourceError(
            f"the source {str(path)!r} is larger than {format_size(_LARGEST_BYTES)}; "
            "check that it is a program, or split it"
        )
    return Program(name, language, source, path)


def discover(paths: Sequence[Path]) -> list[Path]:
    """The sources that files and directories stand for, each once, in the order given.

    A file stands for itself, whatever its suffix; a directory for its ``.cl`` and ``.cu`` files at any depth,
    sorted, without hidden directories and links to directories. Raises SourceError for a missing path,
    for a directory that cannot be listed, and for a directory without sources.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                raise SourceError(f"there is no source {str(path)!r}; check its path")
            found[path] = None
            continue
        try:
            below = sorted(_below(path))
        except RecursionError:
            raise SourceError(
                f"the folder {str(path)!r} is too deep; name the folder of its sources"
            ) from None
        if not below:
            raise SourceError(
                f"the folder {str(path)!r} holds no sources; name a folder with {' or '.join(SUFFIXES)} files"
            )
        found.update(dict.fromkeys(below))
    return list(found)


def _below(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise SourceError(
            f"the folder {str(error.filename)!r} cannot be listed ({_reason(error)}); "
            "check its permissions, or name the sources one by one"
        )

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(folder, name)
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
