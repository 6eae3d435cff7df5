"""Every exception gpucache raises, each with the exit code of the command it ends.

    GpucacheError                 1  any error of gpucache
    +-- UsageError                2  invalid arguments or input
    |   +-- TargetError           2  unknown, ambiguous or malformed target
    |   +-- ManifestError         2  the manifest cannot be parsed; names line and field
    |   +-- SourceError           2  a source or directory that cannot be read
    |   |   +-- UnreadSourceError 2  one over a limit of size or number; costs its own item
    |   +-- OptionError           2  a build option gpucache must refuse
    |   +-- CommandError        126  a command that cannot be started; codes as in shells
    |       +-- CommandNotFoundError  127  a command that does not exist
    +-- SystemRefusedError        1  a disk, a server or a limit of the system refused a named file
    +-- CompileError              3  the compiler refused; carries its log
    +-- KernelCheckError          3  a check inside a kernel failed; names kernel, work-item, file and line
    +-- CacheMissError            3  GPUCACHE_REQUIRE is set and the cache missed
    +-- FormatError               3  an entry whose bytes do not fit its format
    +-- NoDeviceError             4  no usable device or compiler
    +-- WorkersError              4  no worker process can be started; gives reason and remedy
    +-- RemoteError               5  a store elsewhere cannot be reached or read
    +-- CacheUnusableError        5  the root cannot be used; gives reason and remedy

A message is one sentence that names the thing and the remedy. This module imports nothing of gpucache.
"""

from enum import IntEnum

_LOG_LINES = 20
_LOG_CHARACTERS = 4000


class ExitCode(IntEnum):
    """The exit codes of the process, each with its meaning."""

    meaning: str

    DONE = 0, "done"
    UNEXPECTED = 1, "the system refused (a full disk, a limit), or a defect of gpucache"
    USAGE = 2, "usage error, or a named file that cannot be read or written"
    FINDINGS = 3, "problems found, builds failed, or (with --check) something would miss"
    NOTHING_ATTEMPTED = 4, "nothing was attempted: no usable device, compiler or process"
    CACHE_UNUSABLE = 5, "a cache cannot be used, or only part of it was read"
    NOT_EXECUTABLE = 126, "the command after '--' cannot be executed"
    NOT_FOUND = 127, "the command after '--' does not exist"
    INTERRUPTED = 130, "interrupted"

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        one = int.__new__(cls, code)
        one._value_ = code
        one.meaning = meaning
        return one


class GpucacheError(Exception):
    """Base of all; never raised itself."""

    exit_code = ExitCode.UNEXPECTED

    @property
    def message(self) -> str:
        """One sentence, without the compiler's messages."""
        return str(self.args[0])


class UsageError(GpucacheError):
    """Invalid arguments or input."""

    exit_code = ExitCode.USAGE


class TargetError(UsageError):
    """A target that is unknown, ambiguous or malformed."""


class ManifestError(UsageError):
    """The manifest is not valid."""


class SourceError(UsageError):
    """A source, directory or include that cannot be read."""


class UnreadSourceError(SourceError):
    """A source, or a pattern's match, is too large; other programs can still be read."""


class OptionError(UsageError):
    """A build option with side effects, or one that cannot be keyed."""


class CommandError(UsageError):
    """A user's command that cannot be started."""

    exit_code = ExitCode.NOT_EXECUTABLE

    @classmethod
    def of(cls, name: str, error: OSError | ValueError) -> "CommandError":
        """The error for a command that the system refused to start."""
        why = error.strerror if isinstance(error, OSError) else error
        told = f"the command {name!r} cannot be started ({why}); check its name"
        if isinstance(error, FileNotFoundError):
            return CommandNotFoundError(told)
        return cls(f"{told}, and that it is a program that you may execute")


class CommandNotFoundError(CommandError):
    """A command that does not exist."""

    exit_code = ExitCode.NOT_FOUND


class CompileError(GpucacheError):
    """The compiler refused the program; ``log`` is its own text, under the program's own file name.

    As text it is the message and how the log begins.
    """

    exit_code = ExitCode.FINDINGS

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message, log)
        self.log = log

    def __str__(self) -> str:
        lines = self.log[:_LOG_CHARACTERS].splitlines()[:_LOG_LINES]
        shown = "\n".join(lines)
        more = ["... and more in the log"] if len(shown) < len(self.log.rstrip()) else []
        return "\n".join([self.message, *lines, *more])


class KernelCheckError(GpucacheError):
    """A check inside a kernel failed; the context and its queues stay usable.

    ``text`` is the check's own message with its operands, ``work_item`` the global id in three
    dimensions. ``file`` is the program's name and ``line`` that of the check; ``in_file`` is False for a
    check of a header or a macro, whose line is of another file.
    """

    exit_code = ExitCode.FINDINGS

    def __init__(
        self,
        text: str,
        file: str = "",
        line: int = 0,
        kernel: str = "",
        work_item: tuple[int, int, int] = (0, 0, 0),
        in_file: bool = True,
    ) -> None:
        super().__init__(text, file, line, kernel, work_item, in_file)
        self.text, self.file, self.line, self.kernel, self.work_item = text, file, line, kernel, work_item
        self.in_file = in_file

    @property
    def message(self) -> str:
        """One sentence with everything that is known."""
        if not self.file:
            return self.text
        place = f"line {self.line}" if self.in_file else f"line {self.line} of a header or a macro"
        item = ", ".join(map(str, self.work_item))
        return f"{self.file}, {place}: {self.text} (kernel {self.kernel}, work-item {item})"

    def __str__(self) -> str:
        return self.message


class SystemRefusedError(GpucacheError):
    """A disk, a server or a limit of the system refused a file that was named."""


class CacheMissError(GpucacheError):
    """``GPUCACHE_REQUIRE`` is set and the cache missed; names program, target and verdict."""

    exit_code = ExitCode.FINDINGS


class FormatError(GpucacheError):
    """An entry whose bytes contradict its format."""

    exit_code = ExitCode.FINDINGS


class NoDeviceError(GpucacheError):
    """Nothing could be attempted: no usable device or compiler."""

    exit_code = ExitCode.NOTHING_ATTEMPTED


class WorkersError(GpucacheError):
    """No worker process can be started."""

    exit_code = ExitCode.NOTHING_ATTEMPTED


class RemoteError(GpucacheError):
    """A store elsewhere cannot be reached, refused, or has unreadable objects."""

    exit_code = ExitCode.CACHE_UNUSABLE


class CacheUnusableError(GpucacheError):
    """The cache root cannot be used."""

    exit_code = ExitCode.CACHE_UNUSABLE
