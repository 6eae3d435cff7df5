"""The devices that a command's OpenCL programs can be built for: probed in the command's environment.

Owns which row of a probe a program's device is, and that drivers which did not change are not asked again.
Must not load a GPU stack: the probe's child does.
"""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpucache.backends.opencl.installations import cpu_features
from gpucache.backends.opencl.options import INTEL
from gpucache.errors import TargetError
from gpucache.model import Device, Target, Toolchain
from gpucache.probe.ask import ask
from gpucache.probe.remembered import EARLY_FILE, recalled, remember
from gpucache.sources import Memos

_WAIT_S = 50.0
"""How long a question waits for the probe if no program waits for its answer, or one for a minute."""
LABELS = (
    *("platform name", "platform vendor", "platform version"),
    *("device name", "device vendor", "device version", "driver version"),
)
"""The facts of a device in a question, in their order."""
_CPU = "CPU features"


class NotKnownYetError(TargetError):
    """The probe takes longer than a build may wait; a later query may succeed."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The properties of a device as its program's driver reports them."""

    library: str
    """The file of the driver; empty if that is not known."""
    values: tuple[str, ...]
    """The driver's answers in the order of ``LABELS``."""

    COUNT = 1 + len(LABELS)


class Devices:
    """The OpenCL devices of this machine, as a probe found them."""

    def __init__(
        self,
        memos: Memos | None = None,
        probe: Callable[[], Sequence[Device]] = lambda: ask(["opencl"]),
        wait_s: float = _WAIT_S,
    ) -> None:
        """``wait_s`` is how long a question may wait for the probe."""
        self._memos = memos
        self._probe = probe
        self._wait_s = wait_s
        self._rows: Sequence[Device] = ()
        self._begun = threading.Lock()
        self._ready, self._remembered = threading.Event(), threading.Event()
        self._is_late = False
        self._cwd = os.getcwd()  # noqa: PTH109 - the probe's, as text

    def begin(self) -> None:
        """Know the devices of the last probe, or start one, and wait for nothing; later calls do nothing."""
        if self._rows:
            return
        known = recalled(self._memos, "opencl") if self._memos is not None else []
        if rows := [row for row in known if row.toolchain and _is_of_this_cpu(row.toolchain)]:
            self._rows = rows
        else:
            self._begin_probe()

    def match(self, facts: Facts, cwd: str) -> tuple[Target, Toolchain]:
        """The compiler for a device of a program in a directory; raises TargetError if it is not (yet) known.

        A driver is the same if its file is, or a file with the same build id: versions alone do not
        distinguish builds of a driver.
        """
        row = self._row(facts)
        name = facts.values[3].strip()
        if row.target is None or row.toolchain is None:
            raise TargetError(f"the device {name!r} has no target")
        if row.toolchain.implementation == INTEL and cwd != self._cwd and _configured(cwd, self._cwd):
            raise TargetError(f"{name!r} may have read another {EARLY_FILE} when its driver was loaded")
        return row.target, row.toolchain

    def files(self, facts: Facts) -> tuple[str, ...]:
        """The files of the driver of a device; raises TargetError."""
        return self._row(facts).files

    def _row(self, facts: Facts) -> Device:
        found = self._found(facts)
        if not found:
            self._begin_probe()
            if not self._ready.wait(self._wait_s):
                self._is_late = True
                raise NotKnownYetError("the probe of devices took too long; the next run knows them")
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
            remember(self._memos, "opencl", self._rows)
        self._remembered.set()

    def end(self, wait_s: float) -> None:
        """Wait for a probe that was too late for a build, so that the next run knows the devices."""
        if self._is_late:
            self._remembered.wait(wait_s)


def _says(row: Device, facts: Facts) -> bool:
    if row.toolchain is None:
        return False
    fields = dict(row.toolchain.fields)
    return tuple(fields.get(label) for label in LABELS) == facts.values


def _same_driver(row: Device, library: str) -> bool:
    if not row.files or not library or os.path.realpath(row.files[0]) == os.path.realpath(library):
        return True
    return _mark(os.path.realpath(row.files[0])) == _mark(os.path.realpath(library))


@lru_cache(maxsize=32)
def _mark(library: str) -> str:
    from gpucache.backends.installation import mark  # a driver in the place where it was probed needs none

    return mark(Path(library))


def _configured(*folders: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, EARLY_FILE)) for folder in folders)  # noqa: PTH118


def _is_of_this_cpu(toolchain: Toolchain) -> bool:
    return dict(toolchain.fields).get(_CPU, cpu_features()) == cpu_features()
