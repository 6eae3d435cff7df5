"""The directory of a layer: a root with entries and rows, and the libraries and variables to read it.

It is meant to be copied to where it is used, so all users may read it and only its owner may write to it.
Every file is replaced as a whole: programs that run go on with the version that they opened. The libraries
travel in it, so that a layer is always read by the version that wrote it.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from gpucache.engine.stores import Stores
from gpucache.errors import UsageError
from gpucache.host import os_errors
from gpucache.native.build import SHIMS, file_name
from gpucache.native.locate import locate
from gpucache.serve.environment import AUDIT, LAYERS, TUNABLES, with_room
from gpucache.store import layout
from gpucache.store.directory import DirectoryStore
from gpucache.store.layout import ENVIRONMENT, LIBRARIES

VARIABLE = "GPUCACHE_LAYER"
_FOLDER_MODE, _FILE_MODE, _LIBRARY_MODE = 0o755, 0o644, 0o755
_NEEDED = {
    "opencl": ("opencl_layer",),
    "cuda": ("nvrtc_audit", *(f"{name}_{major}" for name, major, _ in SHIMS if name == "nvrtc")),
    "hip": ("nvrtc_audit", *(f"{name}_{major}" for name, major, _ in SHIMS if name != "nvrtc")),
}
_LOADED = {"opencl_layer": LAYERS, "nvrtc_audit": AUDIT}
"""The variables that make programs load a library."""
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
        if names and not {ENVIRONMENT, layout.VERSION_FOLDER} <= names:
            old = "is a layer of an earlier gpucache" if ENVIRONMENT in names else "contains other files"
            raise UsageError(f"{folder} {old}; name a new directory for the layer")
        if status.st_mode & 0o022:
            raise UsageError(
                f"others may write to {folder}, so no program would trust it; run chmod go-w on it"
            )
        self.exists = bool(names)
        self.stores = Stores(user=DirectoryStore(self.folder, writable=True, shared=True))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that adds to it. Raises CacheUnusableError; a new layer is then removed."""
        import fcntl  # not above: other verbs look for layers on systems without it as well

        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self.exists = self.exists or (self.folder / ENVIRONMENT).is_file()  # of another export
                try:
                    yield
                finally:
                    for name in () if self.exists else (layout.VERSION_FOLDER, LIBRARIES):
                        shutil.rmtree(self.folder / name, ignore_errors=True)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise os_errors.unwritable(self.folder, error, "name another directory") from None

    def finish(self, backends: Iterable[str]) -> tuple[int, int]:
        """Write the libraries for the programs of some backends, and the environment, below ``writing``.

        Returns the number of answers, and the size of all entries and rows.
        """
        lib = self.folder / LIBRARIES
        lib.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        lib.chmod(_FOLDER_MODE)
        there = [library for backend in backends for library in _NEEDED[backend]]
        there += [name for names in _NEEDED.values() for name in names if (lib / file_name(name)).is_file()]
        for name in dict.fromkeys(there):
            source = locate(name)
            self._put(lib / source.name, source.read_bytes(), _LIBRARY_MODE)
        variables = [f"{VARIABLE}={self._place}"]
        variables += [
            f"{variable}={self._place}/{LIBRARIES}/{file_name(name)}"
            for name, variable in _LOADED.items()
            if name in there
        ]
        if "nvrtc_audit" in there:
            variables.append(f"{TUNABLES}={with_room('')}")
        text = "".join(f"{line}\n" for line in variables)
        self._put(self.folder / ENVIRONMENT, text.encode(), _FILE_MODE)
        self.exists = True
        files = (self.folder / layout.VERSION_FOLDER).rglob("*")
        rows = () if self.stores.user is None else self.stores.user.rows.each()
        answers = {row.of_question for row in rows}
        return len(answers), sum(file.stat().st_size for file in files if file.is_file())

    def _put(self, file: Path, data: bytes, mode: int) -> None:
        """Replace a file that may be in use."""
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
