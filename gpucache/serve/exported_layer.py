"""The directory of a layer: the index, the libraries that read it, and the variables that load them.

It is meant to be copied to where it is used, so all users may read it and only its owner may write to it.
Every file is replaced as a whole: programs that run go on with the version that they opened.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex

from gpucache.errors import UsageError
from gpucache.host import os_errors
from gpucache.native.build import file_name
from gpucache.native.locate import locate
from gpucache.serve.environment import AUDIT, LAYERS, TUNABLES, with_room
from gpucache.serve.index import Row, encode, merged, read_rows
from gpucache.serve.wire import Kind

INDEX, LIBRARIES, ENVIRONMENT = "index", "lib", "gpucache.env"
INDEX_VARIABLE = "GPUCACHE_LAYER_INDEX"
_FOLDER_MODE, _FILE_MODE, _LIBRARY_MODE = 0o755, 0o644, 0o755
_NEEDED = {
    **dict.fromkeys((Kind.BUILD, Kind.PART, Kind.LINK), ("opencl_layer",)),
    Kind.COMPILE: ("nvrtc_audit", "nvrtc_12", "nvrtc_13"),
}
_LOADED = {"opencl_layer": LAYERS, "nvrtc_audit": AUDIT}
"""The variables by which programs come to load a library."""
# Docker takes a line as it is, and systemd and shells read signs in it; ':' ends a path in a list.
_PLAIN = re.compile(r"/[\w./+@%,=-]*", re.ASCII)


class Layer:
    """A layer to be written, or to be added to."""

    def __init__(self, folder: Path, place: str = "") -> None:
        """``place`` is where the layer will be used, if elsewhere. Raises UsageError, CacheUnusableError."""
        self.folder = folder.absolute()
        self._place = os.path.normpath(place or self.folder)
        if not _PLAIN.fullmatch(self._place):
            raise UsageError(
                f"{self._place!r} is the layer's place, but is not valid in an environment file; "
                "give an absolute path of letters, digits and ._-+@%,= with --at"
            )
        try:
            is_new = not self.folder.exists()
            self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            if is_new:
                self.folder.chmod(_FOLDER_MODE)  # regardless of the umask: others are to read it
            names = set(os.listdir(self.folder))  # noqa: PTH208 - names are enough
            status = self.folder.stat()
        except OSError as error:
            raise os_errors.unwritable(folder, error, "name another", "made a layer") from None
        if names and INDEX not in names:
            raise UsageError(f"{folder} contains other files; name a new directory for the layer")
        if status.st_mode & 0o022:
            raise UsageError(
                f"others may write to {folder}, so no program would trust it; run chmod go-w on it"
            )
        self.exists = bool(names)
        """Whether there is a layer already."""
        read_rows(self.folder / INDEX)  # it is reported before the command runs if it is damaged

    def add(self, kinds: Sequence[Kind], rows: Sequence[Row]) -> tuple[int, int]:
        """Add answers; returns the index's number of answers, and its size. Raises CacheUnusableError."""
        with self._writing(), ExitStack() as undo:
            lib = self.folder / LIBRARIES
            if not (self.folder / INDEX).exists():
                undo.callback(shutil.rmtree, lib, ignore_errors=True)
                undo.callback((self.folder / INDEX).unlink, missing_ok=True)
            lib.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            lib.chmod(_FOLDER_MODE)
            there = [library for kind in kinds for library in _NEEDED[kind]]
            there += [
                name for names in _NEEDED.values() for name in names if (lib / file_name(name)).is_file()
            ]
            for name in dict.fromkeys(there):
                source = locate(name)
                self._put(lib / source.name, source.read_bytes(), _LIBRARY_MODE)
            all_rows = merged(rows, read_rows(self.folder / INDEX))
            data = encode(all_rows)
            self._put(self.folder / INDEX, data, _FILE_MODE)
            variables = [f"{INDEX_VARIABLE}={self._place}/{INDEX}"]
            variables += [
                f"{variable}={self._place}/{LIBRARIES}/{file_name(name)}"
                for name, variable in _LOADED.items()
                if name in there
            ]
            if "nvrtc_audit" in there:
                variables.append(f"{TUNABLES}={with_room('')}")
            text = "".join(f"{line}\n" for line in variables)
            self._put(self.folder / ENVIRONMENT, text.encode(), _FILE_MODE)
            undo.pop_all()
            return len(all_rows), len(data)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Alone among those that add; raises CacheUnusableError where something cannot be written."""
        import fcntl  # not above: other verbs look for layers on systems without it as well

        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            raise os_errors.unwritable(self.folder, error, "name another directory") from None

    def _put(self, file: Path, data: bytes, mode: int) -> None:
        """Put a file in the place of one that may be in use."""
        new = file.with_name(f".{file.name}-{token_hex(4)}")
        try:
            with new.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def is_layer(folder: Path) -> bool:
    """Whether a directory contains the files that ``Layer`` writes."""
    return (folder / INDEX).is_file() and (folder / ENVIRONMENT).is_file()
