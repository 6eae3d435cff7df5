"""The programs of a command as files that people read: source, options, log and binary of each.

Owns the names of these files, and a list of them in their directory: only what an earlier run listed there is
removed. Must not know a compiler's requests. Nothing that fails here concerns the command.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from gpucache.engine.prepare import Prepared
from gpucache.errors import UsageError
from gpucache.host import os_errors
from gpucache.model import Language

LIST = "gpucache-sources.txt"
_LIST_BYTES = 16 << 20
_NAME_CHARACTERS = 60
_ENDINGS = {Language.OPENCL_C: "cl", Language.CUDA_CPP: "cu", Language.HIP_CPP: "hip", Language.SPIR_V: "spv"}
_FILE = re.compile(r"[\w.+-]+-[0-9a-f]{12}\.[\w.-]+", re.ASCII)


class KeptSources:
    """A directory with the programs of one run; any thread may add to it."""

    def __init__(self, folder: Path) -> None:
        """Removes the files of the run before; raises UsageError if the directory cannot be used."""
        self._folder = folder
        self._lock = Lock()
        self._names: dict[str, None] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in self._listed():
                (folder / name).unlink(missing_ok=True)
            self._write(LIST, b"")
        except OSError as error:
            raise os_errors.unwritable(folder, error, "name another directory") from None
        if not os.access(folder, os.W_OK):
            raise UsageError(f"{folder} cannot be written; name another directory")

    def asked(self, prepared: Iterable[Prepared]) -> None:
        """Write the source and the options of each part of a build, once."""
        for one in prepared:
            program = one.request.program
            self._add(one, _ENDINGS.get(Language(program.language), "txt"), program.source)
            self._add(one, "options.txt", "".join(f"{line}\n" for line in one.compilation.inputs.options))

    def done(self, one: Prepared, log: str, kind: str = "", payload: bytes = b"") -> None:
        """Write the log of a compiler, and an artifact of some kind."""
        if log:
            self._add(one, "log.txt", log)
        if kind:
            self._add(one, kind, payload)

    def _add(self, one: Prepared, ending: str, content: str | bytes) -> None:
        data = content if isinstance(content, bytes) else content.encode(errors="surrogateescape")
        base = one.request.program.name.rpartition("/")[2]
        base = base.removesuffix(f".{_ENDINGS.get(Language(one.request.program.language))}")
        readable = re.sub(r"[^\w.+-]+", "_", base, flags=re.ASCII)[:_NAME_CHARACTERS] or "program"
        name = f"{readable}-{one.key.short}.{ending}"
        with self._lock, suppress(OSError):
            if name not in self._names:
                self._names[name] = None
                with (self._folder / LIST).open("a", encoding="ascii") as file:
                    file.write(f"{name}\n")
            self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder / name, flags, 0o600), "wb") as file:
            file.write(data)

    def _listed(self) -> Sequence[str]:
        """The names that an earlier run wrote, and nothing else that a list may say."""
        with suppress(FileNotFoundError, UnicodeDecodeError):
            with (self._folder / LIST).open("rb") as file:
                lines = file.read(_LIST_BYTES).decode("ascii").splitlines()
            return [line for line in lines if _FILE.fullmatch(line)]
        return []
