"""What a Futhark program tells with ``-L`` of its options and of its cache file. Pure.

Source: Futhark, rts/c/backends/{cuda,hip,opencl}.h. Any bytes are read; lines of others are passed
over. A log of several starts counts for its last one.
"""

from dataclasses import dataclass
from enum import StrEnum

OPTION_LIMIT = 100_000
_LISTS = {b"NVRTC compile options:": "cuda", b"HIPRTC build options:": "hip"}
_JOINED = b"OpenCL compiler options: "
_ASKING = b"Restoring cache from from "
_FAILED = b"Failed to restore cache (errno: "
_STORE_FAILED = (b"Failed to cache PTX: ", b"Failed to cache compiled code: ", b"Failed to cache binary: ")
_RESTORED = (b"Restored PTX from cache", b"Restored compiled code from cache", b"Cache restored;")
_REFUSED = (b"Failed!", b"Loading failed.")
_BUILD_FAILED = b"Compilation of OpenCL program failed"


class Outcome(StrEnum):
    """What became of the cache file, as a clause that follows 'the log says that'."""

    UNSAID = "nothing is known of any cache file"
    ASKED = "the program asked for the file, and not what came of it"
    ABSENT = "the file was not there"
    MISMATCH = "the file was damaged or had another key"
    UNREADABLE = "the file could not be read"
    RESTORED = "the file was restored"
    REFUSED = "the file was restored and the driver refused what it holds"
    STOPPED = "the file was restored and the program stopped, as its platform refused to build it"


_ERRNOS = {b"Success": Outcome.MISMATCH, b"No such file or directory": Outcome.ABSENT}


@dataclass(frozen=True, slots=True)
class LogReading:
    """What a log tells of its last start."""

    backend: str = ""
    options: tuple[bytes, ...] | None = None
    """None where the log has no list of options; one joined string for OpenCL."""
    asked_for: bytes = b""
    """The cache file's name as the program was given it."""
    outcome: Outcome = Outcome.UNSAID
    reason: bytes = b""
    """Why it could not be read, where that is neither absence nor a mismatch."""
    store_error: bytes = b""
    """Why the file could not be written."""


@dataclass(slots=True)
class _Reader:
    backend: str = ""
    options: list[bytes] | None = None
    listing: bool = False
    asked_for: bytes = b""
    outcome: Outcome = Outcome.UNSAID
    reason: bytes = b""
    store_error: bytes = b""

    def take(self, line: bytes) -> None:
        if self.listing and self.options is not None:
            self.listing = line.startswith(b"\t") and len(self.options) < OPTION_LIMIT
            if self.listing:
                self.options.append(line[1:])
                return
        if line in _LISTS:
            self._start(_LISTS[line], [])
            self.listing = True
        elif line.startswith(_JOINED):
            self._start("opencl", [line.removeprefix(_JOINED)])
        else:
            self._event(line)

    def _start(self, backend: str, options: list[bytes]) -> None:
        self.backend, self.options, self.listing = backend, options, False
        self.asked_for, self.outcome, self.reason, self.store_error = b"", Outcome.UNSAID, b"", b""

    def _event(self, line: bytes) -> None:
        if line.startswith(_ASKING):
            self.asked_for = line.removeprefix(_ASKING).removesuffix(b"...")
            self.outcome = Outcome.ASKED
        elif line.startswith(_FAILED):
            why = line.removeprefix(_FAILED).removesuffix(b")")
            self.outcome = _ERRNOS.get(why, Outcome.UNREADABLE)
            self.reason = why if self.outcome is Outcome.UNREADABLE else b""
        elif line.startswith(_STORE_FAILED):
            self.store_error = line.partition(b": ")[2]
        else:
            self._ending(line)

    def _ending(self, line: bytes) -> None:
        if self.outcome is Outcome.ASKED and line.startswith(_RESTORED):
            self.outcome = Outcome.RESTORED
        elif self.outcome is not Outcome.RESTORED:
            return  # a program says 'Failed!' of other things too
        elif line.startswith(_REFUSED):
            self.outcome = Outcome.REFUSED
        elif _BUILD_FAILED in line:
            self.outcome = Outcome.STOPPED


def read_log(log: bytes) -> LogReading:
    """What a log tells. Raises nothing, whatever the bytes."""
    reader = _Reader()
    for line in log.split(b"\n"):
        reader.take(line.removesuffix(b"\r"))
    options = None if reader.options is None else tuple(reader.options)
    return LogReading(
        reader.backend, options, reader.asked_for, reader.outcome, reader.reason, reader.store_error
    )
