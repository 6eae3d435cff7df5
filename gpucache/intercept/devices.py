"""The devices that a command's OpenCL programs can be built for: probed in the command's environment.

A probe takes as long as a small program's start, so what one found is remembered in the cache, with the
state of every file of the drivers: those that did not change are not asked again. Owns which row of a probe a
program's device is. Must not load a GPU stack: the probe's child does.
"""

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpucache import __version__
from gpucache.backends.opencl.cpu import cpu_features
from gpucache.backends.opencl.options import INTEL
from gpucache.errors import TargetError
from gpucache.keys import digest
from gpucache.model import Device, Target, Toolchain
from gpucache.probe import ask
from gpucache.probe.codec import device_from_json, device_to_json
from gpucache.sources import Memos

WAIT_S = 2.0
"""How long a build may wait for the probe: with the making of a service less than a command's time-out."""
_LABELS = (
    *("platform name", "platform vendor", "platform version"),
    *("device name", "device vendor", "device version", "driver version"),
)
_EARLY, _EARLY_FILE = "configuration at the start", "cl.cfg"
"""Read from the current directory by Intel's runtime when it is loaded."""
_CPU = "CPU features"
_VENDORS = "/etc/OpenCL/vendors"
"""Where a loader looks for drivers that is told nothing."""
_OF_THE_LOADER = re.compile(r"OCL_ICD_.*|OPENCL_VENDOR_PATH|LD_LIBRARY_PATH|\w+_DEVICES")


class NotKnownYetError(TargetError):
    """The probe takes longer than a build may wait; asked once more later it may be known."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a program's driver says of a device."""

    library: str
    """The file of the driver; empty if that is not known."""
    values: tuple[str, ...]
    """In the order of ``_LABELS``."""

    COUNT = 1 + len(_LABELS)


class Devices:
    """The OpenCL devices here, as a probe found them."""

    def __init__(
        self,
        memos: Memos | None = None,
        probe: Callable[[], Sequence[Device]] = lambda: ask(["opencl"]),
        wait_s: float = WAIT_S,
    ) -> None:
        """``wait_s`` is how long a question may wait for the probe."""
        self._memos = memos
        self._probe = probe
        self._wait_s = wait_s
        self._rows: Sequence[Device] = ()
        self._begun = threading.Lock()
        self._ready = threading.Event()
        self._cwd = os.getcwd()  # noqa: PTH109 - the probe's, as text

    def begin(self) -> None:
        """Know the devices of the last probe, or start one, and wait for nothing; later calls do nothing."""
        if self._rows:
            return
        rows = _recall(self._memos) if self._memos is not None else ()
        if rows:
            self._rows = rows
        else:
            self._begin_probe()

    def match(self, facts: Facts, cwd: str) -> tuple[Target, Toolchain]:
        """Who compiles for a device of a program in a folder; raises TargetError if nobody can tell (yet).

        A driver is the same if its file is, or a file with the same build id: versions alone do not tell
        one build of a driver from another.
        """
        row = self._row(facts)
        name = facts.values[3].strip()
        if row.target is None or row.toolchain is None:
            raise TargetError(f"the device {name!r} has no target")
        if row.toolchain.implementation == INTEL and cwd != self._cwd and _configured(cwd, self._cwd):
            raise TargetError(f"{name!r} may have read a {_EARLY_FILE} elsewhere when its driver was loaded")
        return row.target, row.toolchain

    def files(self, facts: Facts) -> tuple[str, ...]:
        """The files of the driver of a device; raises TargetError."""
        return self._row(facts).files

    def _row(self, facts: Facts) -> Device:
        found = self._found(facts)
        if not found:
            self._begin_probe()
            if not self._ready.wait(self._wait_s):
                raise NotKnownYetError("the devices here were not known in time; look at 'gpucache devices'")
            found = self._found(facts)
        if len({row.toolchain for row in found}) != 1:
            told = "several compilers say the same" if found else "its driver is not seen"
            raise TargetError(
                f"of the device {facts.values[3].strip()!r} {told} by 'gpucache devices' in the command's "
                "environment"
            )
        return found[0]

    def _found(self, facts: Facts) -> list[Device]:
        return [row for row in self._rows if _says(row, facts) and _same_driver(row, facts.library)]

    def _begin_probe(self) -> None:
        if self._begun.acquire(blocking=False):
            threading.Thread(target=self._ask, name="gpucache-probe", daemon=True).start()

    def _ask(self) -> None:
        try:
            self._rows = self._probe()
        finally:
            self._ready.set()
        if self._memos is not None:
            _remember(self._memos, self._rows)


def _says(row: Device, facts: Facts) -> bool:
    if row.toolchain is None:
        return False
    fields = dict(row.toolchain.fields)
    return tuple(fields.get(label) for label in _LABELS) == facts.values


def _same_driver(row: Device, library: str) -> bool:
    if not row.files or not library or os.path.realpath(row.files[0]) == os.path.realpath(library):
        return True
    return _mark(os.path.realpath(row.files[0])) == _mark(os.path.realpath(library))


@lru_cache(maxsize=32)
def _mark(library: str) -> str:
    from gpucache.backends.installation import mark  # a driver that lies where it was probed needs none

    return mark(Path(library))


def _configured(*folders: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, _EARLY_FILE)) for folder in folders)  # noqa: PTH118


def _memo() -> str:
    """Where devices are remembered: those of a loader that is told the same, as all of them name a target."""
    told = sorted((name, value) for name, value in os.environ.items() if _OF_THE_LOADER.fullmatch(name))
    return digest(repr(("OpenCL devices", __version__, sys.prefix, told)).encode())


def _remember(memos: Memos, rows: Sequence[Device]) -> None:
    """Keep the rows whose drivers' files are known, with the state of the files and of their folders."""
    kept = [row for row in rows if row.files and row.toolchain and _EARLY not in dict(row.toolchain.fields)]
    paths = {path for row in kept for file in row.files for path in (file, os.path.dirname(file))}  # noqa: PTH120
    paths |= {_VENDORS, os.environ.get("OCL_ICD_VENDORS", _VENDORS)}
    states = {path: _state(path) for path in sorted(paths)}
    if kept:
        document = {"rows": [device_to_json(row) for row in kept], "states": states}
        memos.remember(_memo(), json.dumps(document, separators=(",", ":")).encode())


def _recall(memos: Memos) -> Sequence[Device]:
    """The rows of the last probe if their drivers are as they were; none otherwise."""
    data = memos.recall(_memo())
    if data is None:
        return ()
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, TargetError):
        document = json.loads(data)
        if any(_state(path) != state for path, state in document["states"].items()):
            return ()
        rows = [device_from_json(row) for row in document["rows"]]
        return [row for row in rows if row.toolchain and _is_of_this_cpu(row.toolchain)]
    return ()


def _is_of_this_cpu(toolchain: Toolchain) -> bool:
    return dict(toolchain.fields).get(_CPU, cpu_features()) == cpu_features()


def _state(path: str) -> list[int] | None:
    """What tells that a file or folder is another; None if it is not there."""
    with suppress(OSError, ValueError):
        found = os.stat(path)  # noqa: PTH116 - a path of text
        return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    return None
