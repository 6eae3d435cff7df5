"""The command of ``gpucache run``, from its start to its end, and the line that is written then.

Owns its server: none at first, as the command itself finds hits through the index; the modules that serve
the rest are imported at the first question. Imports next to nothing, and no Click or settings:
every command waits for that. Must not know options: ``run`` does.
"""

# Paths are text, as in variables.
# ruff: noqa: PTH100, PTH102, PTH103, PTH111, PTH118, PTH119, PTH120

import errno
import os
import stat
import sys
import time

from gpucache.native.locate import find
from gpucache.serve.command import Plain, await_command, end_by, heed
from gpucache.serve.environment import TIMEOUT, Libraries, probe_s, step_s
from gpucache.serve.listening import Listening

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpucache.answers.run import Ended, Intercepted
    from gpucache.engine.stores import Stores
    from gpucache.serve.nvrtc import NVRTCServing
    from gpucache.serve.opencl import OpenCLServing
    from gpucache.serve.server import Handlers, Later
    from gpucache.settings import Settings

_JOURNAL_CAP = 1 << 20
_PLAIN = frozenset(
    {
        "GPUCACHE_DIR",
        "GPUCACHE_SYSTEM_DIRS",
        "GPUCACHE_REMOTE",
        "GPUCACHE_REMOTE_WRITE",
        "GPUCACHE_REMOTE_TIMEOUT_MS",
        "GPUCACHE_TRUSTED_KEYS",
        "GPUCACHE_SIGNING_KEY",
        "GPUCACHE_RUN_TIMEOUT_MS",
    }
)
"""The gpucache variables with which a command may be run before options and settings are read."""


def is_plain(arguments: "Sequence[str]") -> bool:
    """Whether a command line is ``run -- COMMAND`` alone, with nothing else to be read first."""
    if arguments[:2] != ["run", "--"] or len(arguments) == 2:
        return False
    os.umask(os.umask(0o077) & 0o077)  # as process does
    if any(name.startswith("GPUCACHE_") and name not in _PLAIN for name in os.environ):
        return False
    return None not in (sys.stdin, sys.stdout, sys.stderr)


def plain_roots() -> str:
    """The roots that answer a plain command, as settings find them."""
    caches = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    root = os.environ.get("GPUCACHE_DIR") or os.path.join(caches, "gpucache")
    own = root.startswith(("/", ".")) or "GPUCACHE_DIR" in os.environ
    systems = os.environ.get("GPUCACHE_SYSTEM_DIRS", "").split(os.pathsep)
    return joined(os.path.abspath(root) if own else "", [os.path.abspath(one) for one in systems if one])


def joined(own: str, systems: "Sequence[str]") -> str:
    """Roots as libraries read them, the user's first; empty if a colon in one makes them ambiguous."""
    roots = (own, *systems)
    return "" if any(":" in root for root in roots) else ":".join(roots)


def note_hits(roots: str, command: str, hits: int) -> bool:
    """Append a process's hits to the journal below the first root; whether nothing else remains to be done.

    Does the same as the journal's module without its imports, in the simple case: the file exists, or its
    root does not, it is ours and need not be rotated, and the name needs no escaping.
    """
    root = roots.partition(":")[0]
    path = os.path.join(root, "v1", "journal", "misses.jsonl")
    if not root:
        return True
    if not (command.isascii() and command.isprintable()) or set(command) & set('"\\'):
        return False
    line = f'{{"kind":"process","when_ns":{time.time_ns()},"command":"{command}","pid":{os.getpid()},'
    try:
        if not os.path.lexists(root):
            _make_journal(root, path)
    except (PermissionError, FileExistsError) as error:
        return isinstance(error, PermissionError)
    except OSError as error:
        return error.errno == errno.EROFS
    try:
        # Without O_NONBLOCK a FIFO would wait for its other end.
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        ours = status.st_uid == os.geteuid() and status.st_nlink == 1 and status.st_size < _JOURNAL_CAP
        return (
            ours
            and stat.S_ISREG(status.st_mode)
            and os.write(fd, f'{line}"hits":{hits},"misses":0}}\n'.encode()) > 0
        )
    except OSError:
        return False
    finally:
        os.close(fd)


def _make_journal(root: str, path: str) -> None:
    """Make a private root with an empty journal, as the store does; raises OSError."""
    from gpucache.store.tag import TAG_NAME, TAG_TEXT

    folder = os.path.dirname(path)
    os.makedirs(os.path.dirname(root), 0o700, exist_ok=True)
    for each in (root, os.path.dirname(folder), folder):
        os.mkdir(each, 0o700)
    for file, text in ((os.path.join(root, TAG_NAME), TAG_TEXT), (path, b"")):
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(fd, text)
        os.close(fd)


def _complain(sentence: str) -> None:
    from gpucache.cli.streams import complain

    complain(f"gpucache: {sentence}")


class Running:
    """A command that is run once, and the servers of its compiles."""

    def __init__(
        self,
        command: "Sequence[str]",
        roots: str,
        root: "str | None" = None,
        alone: str = "",
        warn: "Callable[[str], object]" = _complain,
        *,
        nvrtc: bool = True,
    ) -> None:
        """The index of ``roots`` serves the command; ``root`` is the cache's place from the option.

        ``alone`` is the reason not to use either. Without ``nvrtc`` it gets no auditor. ``warn``
        gets sentences for the user, from any thread.
        """
        self._warn = warn
        self._alone = alone
        self._has_nvrtc = nvrtc
        self.command = command
        self._root = root
        self._listening = Listening(self._answering, roots)
        self._ended: Plain = (0, 0, "", False, ())
        self._has_ended = False
        self._error: Exception | None = None
        self._libraries: Libraries | None = None
        self.opencl: Later[OpenCLServing] | None = None
        self.nvrtc: Later[NVRTCServing] | None = None
        """The server of NVRTC's compiles; None if it was not needed."""

    def run(self, environ: "Mapping[str, str]") -> None:
        """Run it, and leave signals blocked; an error before its start is raised by ``ended``."""
        try:
            self._libraries = libraries(nvrtc=self._has_nvrtc)
            self._ended = await_command(self.command, environ, self._libraries, self._listening, self._alone)
            self._has_ended = True
        except Exception as error:
            self._error = error

    @property
    def ended(self) -> "Ended":
        """How it ended; raises the error that kept it from being started."""
        if self._error is not None:
            raise self._error
        from gpucache.answers.run import Ended

        return Ended(*self._ended)

    @property
    def binaries(self) -> int:
        """How many programs it made from binaries."""
        return self._listening.binaries + (
            self.opencl.made.binaries if self.opencl and self.opencl.made else 0
        )

    @property
    def code(self) -> "int | None":
        """The command's exit code, 128 and the number of a signal that ended it; None before its end."""
        return self._ended[0] if self._has_ended else None

    def end_as(self) -> int:
        """End by the command's signal; gives its exit code if there was none."""
        if self._ended[1]:
            end_by(self._ended[1])
        return self._ended[0]

    def end(self) -> "int | None":
        """Write the line for a command that needed no server; its exit code, or None for any other."""
        if self._error is not None:
            return None
        heed()
        code, number, alone, *_ = self._ended
        if number or alone or self.opencl or self._listening.error or self._listening.filtered:
            return None
        if self._listening.launched:
            return None
        from gpucache.answers.run_lines import counted, unbuilt
        from gpucache.units import covered_ns

        hits = [_read(hit) for hit in self._listening.hits]
        if not hits:
            told = unbuilt(code, loaded=self._listening.loaded, binaries=self._listening.binaries)
        elif note_hits(self._listening.roots, self._name, len(hits)):
            waited_ns = covered_ns(sorted((begun, begun + took) for begun, took, *_ in hits))
            ahead_ns = sum(hit[2] for hit in hits if hit[6])
            told = "; ".join(counted(len(hits), len(hits), waited_ns, sum(hit[2] for hit in hits), ahead_ns))
        else:
            return None
        told = f"gpucache: {told}"
        if sys.stderr.isatty():
            from gpucache.cli.streams import fitted

            told = fitted(told)
        sys.stderr.write(f"{told}\n")
        return code

    def finish(self) -> "tuple[Intercepted, ...]":
        """The outcome of each build, in the order in which the command asked for them."""
        from gpucache.answers.run import Intercepted, RunResult

        hits = [_read(hit) for hit in self._listening.hits]
        if hits:
            from gpucache.engine.stores import note_process

            note_process(self._services().stores(), len(hits), 0)
        by_index = [
            Intercepted(
                program,
                target,
                RunResult.HIT,
                key,
                begun_ns=begun,
                build_ns=took,
                saved_ns=saved,
                all_kernels=late,
            )
            for begun, took, saved, key, target, program, late in hits
        ]
        if launched := {*self._listening.launched}:
            if self.opencl is None:
                self._answering()
            serving = self.opencl.now() if self.opencl is not None else None
            if serving is not None:
                serving.note_launches(launched)
        why = (
            "its process has a filter of system calls that gpucache does not have, or no /proc to tell, so "
            "it opens no socket"
        )
        passed = [Intercepted("", "", RunResult.PASSED, reason=why)] * self._listening.filtered
        if (error := self._listening.error) is not None:
            passed.append(Intercepted("", "", RunResult.PASSED, reason=f"the server failed: {error}"))
        by_server = [one for service in (self.opencl, self.nvrtc) if service for one in service.finish()]
        return tuple(sorted((*by_index, *by_server, *passed), key=lambda one: one.begun_ns))

    @property
    def _name(self) -> str:
        return os.path.basename(self.command[0])

    def _services(self) -> "Services":
        from gpucache.settings import read_settings

        settings = read_settings(os.environ, root=self._root)
        return Services(settings, self._name, self._libraries or Libraries(), self._warn)

    def _answering(self) -> "Handlers":
        from gpucache.serve.server import Later
        from gpucache.serve.wire import NVRTC, OPENCL

        make = self._services()
        self.opencl, self.nvrtc = Later(make.opencl, OPENCL), Later(make.nvrtc, NVRTC)
        return {**self.opencl.handlers, **self.nvrtc.handlers}


def _read(hit: bytes) -> tuple[int, int, int, str, str, str, bool]:
    """A hit of the index: start, duration, saved time, key, target and program, and whether it is whole.

    That is one of a compiler that goes on at launches, all of whose kernels were compiled ahead.
    """
    times, key, target, program = hit.split(b"\t")
    word, *numbers = times.split()
    begun, took, saved = map(int, numbers)
    named = target.decode("unicode_escape"), program.decode("unicode_escape")
    return begun, took, saved, key.decode(), *named, word == b"late"


class Services:
    """Makes the servers of the command."""

    def __init__(
        self,
        settings: "Settings",
        command: str,
        libraries: Libraries,
        warn: "Callable[[str], object]" = _complain,
    ) -> None:
        """``warn`` gets sentences for the user."""
        self._settings = settings
        self._command = command
        self._libraries = libraries
        self._warn = warn

    def opencl(self) -> "OpenCLServing":
        """The server of OpenCL builds."""
        from gpucache.serve.devices import Devices

        stores = self.stores()
        devices = Devices(stores, wait_s=probe_s())
        devices.begin()  # which takes longer than the rest
        from gpucache.serve.opencl import OpenCLServing
        from gpucache.serve.telling import said_at

        return OpenCLServing(stores, devices, self._libraries, said_at(self._settings.log))

    def nvrtc(self) -> "NVRTCServing":
        """The server of NVRTC's compiles."""
        from gpucache.serve.nvrtc import NVRTCServing
        from gpucache.serve.telling import said_at

        return NVRTCServing(self.stores(), said_at(self._settings.log))

    def stores(self) -> "Stores":
        """The stores that a lookup goes through."""
        from gpucache.assembly import open_stores

        settings, limit_s = self._settings, step_s()
        if settings.remote is not None and settings.remote.timeout_s > limit_s:
            capped = settings.remote._replace(timeout_s=limit_s, limited_by=TIMEOUT)
            settings = settings._replace(remote=capped)
        return open_stores(settings, command=self._command, warn=self._warn)


def libraries(*, nvrtc: bool = True) -> Libraries:
    """The libraries that go into the command; raises NoDeviceError if nothing could be served."""
    (layer, no_layer), (audit, no_audit) = find("opencl_layer"), find("nvrtc_audit")
    if no_layer and no_audit:
        from gpucache.errors import NoDeviceError

        raise NoDeviceError(no_layer)
    layer, audit = "" if no_layer else layer, "" if no_audit else audit
    return Libraries(layer, audit) if nvrtc else Libraries(layer, left_out=audit)
