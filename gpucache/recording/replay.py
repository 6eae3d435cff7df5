"""From a recording to builds for ``warm``: sources in memory, headers laid out below a scratch directory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpucache.errors import SourceError
from gpucache.recording.builds import RecordedBuild, Seen
from gpucache.recording.reading import RecordingFolder
from gpucache.recording.trees import in_place, lay_out


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded build that can be requested again on this machine."""

    build: RecordedBuild
    local_sizes: tuple[tuple[int, ...], ...]
    source: bytes | None
    """None where the recording keeps digests only."""
    include_dirs: tuple[str, ...] = ()
    """The recorded include directories as laid out, or as given by its program if that calls NVRTC itself."""
    in_place: bool = False
    """Whether these are where they were recorded, with the same headers."""
    directory: str = ""
    """Where its program called NVRTC, if it is built in place; empty for OpenCL."""
    memory_headers: tuple[tuple[str, bytes], ...] = ()
    problem: str = ""
    """Why it cannot be laid out."""


def replay(folder: RecordingFolder, place: Path) -> Iterator[Replayed]:
    """Every build that did not fail where it was recorded.

    Headers that are not any more where they were are written below ``place``.
    """
    laid: dict[tuple[object, ...], tuple[str, ...]] = {}
    for build, seen in folder.recording.rows():
        if seen.failed:
            continue
        if not folder.has_sources(build):
            problem = "a source or header of it is not in the recording" if folder.blobs else ""
            yield Replayed(build, seen.sizes, None, problem=problem)
            continue
        try:
            memory = tuple((name, folder.content(digest)) for name, digest in build.memory_headers)
            dirs, directory = _in_place(build, seen)
            tree = build.folders, build.headers
            if dirs is None and tree not in laid:
                laid[tree] = lay_out(build, folder.content, place / str(len(laid)))
            source, there = folder.content(build.source), dirs is not None
            found = laid[tree] if dirs is None else dirs
            yield Replayed(build, seen.sizes, source, found, there, directory, memory)
        except SourceError as error:
            yield Replayed(build, seen.sizes, None, problem=str(error))
        except OSError as error:
            yield Replayed(
                build, seen.sizes, None, problem=f"its headers cannot be laid out ({error.strerror or error})"
            )


def _in_place(build: RecordedBuild, seen: Seen) -> tuple[tuple[str, ...] | None, str]:
    """The include directories of a build where it was recorded, and the directory of its call if it had one.

    None if its headers no longer exist or have changed.
    """
    for call in sorted(seen.calls):
        if in_place(build, call.roots) is not None and Path(call.directory).is_dir():
            return call.folders, call.directory
    return next(filter(None, (in_place(build, roots) for roots in sorted(seen.roots))), None), ""
