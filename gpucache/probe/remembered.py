"""The result of a probe, for the next process: a probe takes as long as a small program's start.

A memory counts only until the next boot of this machine and if all variables that a loader or a driver may
read, and every file and directory that decides which drivers are found, or is one, are unchanged. Rows of
drivers whose files are not known are not kept. Must not know who keeps the memory, or load a GPU stack.

Also owns devices as JSON values, read strictly, as anybody may have written them, and the targets that the
last probe found, for completions.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpucache import __version__
from gpucache.errors import TargetError
from gpucache.keys import digest
from gpucache.model import Device, Target, Toolchain

EARLY, EARLY_FILE = "configuration at the start", "cl.cfg"
"""Read from the current directory by Intel's runtime when it is loaded."""
_VENDORS = "/etc/OpenCL/vendors"
"""The directory in which OpenCL loaders look for drivers by default."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Part of the key of a probe: another machine with another CPU may have the same files, as in an image."""
_OF_A_SHELL = re.compile(r"_|PWD|OLDPWD|SHLVL|TERM.*|COLUMNS|LINES|SSH_.*|PYTEST_.*|GPUCACHE_.*")
"""Variables that change with each shell; any other variable may matter to a loader or a driver."""


class Memory(Protocol):
    """A store of texts under 64 hex digits. No method raises."""

    def recall(self, name: str) -> bytes | None:
        """The stored text; None if there is none."""

    def remember(self, name: str, data: bytes) -> None:
        """Store a text; losing it is not an error."""


def recalled(memory: Memory, backend: str) -> list[Device]:
    """The rows of the last probe of a backend if nothing has changed since; else none."""
    data = memory.recall(_name(backend))
    if data is None:
        return []
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, TargetError):
        document = json.loads(data)
        if all(_state(path) == state for path, state in document["states"].items()):
            return [device_from_json(row) for row in document["rows"]]
    return []


def remember(memory: Memory, backend: str, rows: Sequence[Device]) -> None:
    """Keep the rows of a backend whose drivers' files are known, with the state of their dependencies."""
    kept = [row for row in rows if row.files and row.toolchain and EARLY not in dict(row.toolchain.fields)]
    if kept:
        paths = {path for row in kept for file in row.files for path in (file, os.path.dirname(file))}  # noqa: PTH120
        paths |= {_VENDORS, os.environ.get("OCL_ICD_VENDORS", _VENDORS), "/etc/ld.so.cache", *sys.path[1:]}
        states = {path: _state(path) for path in sorted(paths)}
        document = {"rows": [device_to_json(row) for row in kept], "states": states}
        memory.remember(_name(backend), json.dumps(document, separators=(",", ":")).encode())


def _name(backend: str) -> str:
    """The key under which a backend's devices are remembered, for one configuration of its loader."""
    told = sorted((name, value) for name, value in os.environ.items() if not _OF_A_SHELL.fullmatch(name))
    boot = ""
    with suppress(OSError):
        boot = _BOOT.read_text(encoding="ascii")
    return digest(repr(("devices", backend, __version__, sys.prefix, boot, told)).encode())


def _state(path: str) -> list[int] | None:
    """The state of a file or directory, which differs after a change; None if it does not exist."""
    with suppress(OSError, ValueError):
        found = os.stat(path)  # noqa: PTH116 - a path of text
        return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    return None


FILE = Path("v1", "targets.json")
_MAX_BYTES = 64 * 1024


def load_last(root: Path) -> list[Target]:
    """The targets of the last probe; empty if none were kept or the file cannot be parsed."""
    try:
        # A pipe must not block this, and a link must not lead it elsewhere.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        if (root / FILE).parent.is_symlink():
            return []
        with os.fdopen(os.open(root / FILE, flags), "rb") as stream:
            values = json.loads(stream.read(_MAX_BYTES))
        return [Target.parse(value) for value in values if isinstance(value, str)]
    except (OSError, ValueError, TypeError, RecursionError, TargetError):
        return []


_T = TypeVar("_T")
_NAMES: dict[type, str] = {str: "text", list: "a list", dict: "an object"}


def device_to_json(device: Device) -> dict[str, Any]:
    target, toolchain = device.target, device.toolchain
    return device._asdict() | {
        "target": None if target is None else str(target),
        "toolchain": None if toolchain is None else toolchain._asdict(),
    }


def device_from_json(value: object) -> Device:
    """The device of a JSON value; raises ValueError if it is not a device, TargetError for its target."""
    record = _of(dict, value)
    target, toolchain = record.get("target"), record.get("toolchain")
    return Device(
        target=None if target is None else Target.parse(_of(str, target)),
        backend=_of(str, record.get("backend")),
        name=_of(str, record.get("name")),
        driver_version=_of(str, record.get("driver_version")),
        available=record.get("available") is True,
        detail=_of(str, record.get("detail")),
        toolchain=None if toolchain is None else _toolchain(_of(dict, toolchain)),
        present=record.get("present") is True,
        files=_texts(record.get("files", [])),
    )


def _toolchain(record: dict[str, object]) -> Toolchain:
    pairs = [_texts(pair) for pair in _of(list, record.get("fields"))]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a toolchain field is a label and a value")
    fields = tuple((label, value) for label, value in pairs)
    return Toolchain(_of(str, record.get("implementation")), fields, _texts(record.get("identity")))


def _of(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise ValueError(f"expected {_NAMES[kind]}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_of(str, item) for item in _of(list, value))
