"""From a recording to what ``warm`` builds: sources in memory, headers laid out below a scratch folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpucache.errors import SourceError
from gpucache.recording.builds import RecordedBuild
from gpucache.recording.reading import RecordingFolder
from gpucache.recording.trees import lay_out


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded build that can be asked for again, here."""

    build: RecordedBuild
    local_sizes: tuple[tuple[int, ...], ...]
    source: bytes | None
    """None where the recording keeps digests only."""
    include_dirs: tuple[str, ...] = ()
    """The recorded include folders as they are laid out."""
    memory_headers: tuple[tuple[str, bytes], ...] = ()
    problem: str = ""
    """Why it cannot be laid out."""


def replay(folder: RecordingFolder, place: Path) -> Iterator[Replayed]:
    """Every build that did not fail where it was recorded; headers are written below ``place``."""
    laid: dict[tuple[object, ...], tuple[str, ...]] = {}
    for build, seen in folder.recording.rows():
        if seen.failed:
            continue
        if not folder.has_sources(build):
            problem = "a source or header of it is not in the recording" if folder.blobs else ""
            yield Replayed(build, seen.sizes, None, problem=problem)
            continue
        try:
            tree = (build.folders, build.headers)
            if tree not in laid:
                laid[tree] = lay_out(build, folder.content, place / str(len(laid)))
            memory = tuple((name, folder.content(digest)) for name, digest in build.memory_headers)
            yield Replayed(build, seen.sizes, folder.content(build.source), laid[tree], memory)
        except SourceError as error:
            yield Replayed(build, seen.sizes, None, problem=str(error))
        except OSError as error:
            yield Replayed(
                build, seen.sizes, None, problem=f"its headers cannot be laid out ({error.strerror or error})"
            )
