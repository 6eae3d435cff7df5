"""The command of ``gpucache run``, from its start to its end.

Owns its server: none at first, as the command itself finds hits through the index; the modules that serve
the rest are imported at the first question. A plain command is started by ``native/run.c``, which ends as it
does if all its builds hit; else this process takes its place. Imports next to nothing, and no Click or
settings: the first question waits for that. Must not know options: ``run`` does.
"""

# Paths are text, as in variables.
# ruff: noqa: PTH118

import os

from gpucache.native.locate import BUILT, find
from gpucache.serve.command import Adopted, Plain, await_command, end_by
from gpucache.serve.environment import FOLLOWED, TIMEOUT, Libraries, probe_s, step_s
from gpucache.serve.listening import Listening

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpucache.answers.run import Ended, Intercepted
    from gpucache.engine.stores import Stores
    from gpucache.serve.kept_sources import KeptSources
    from gpucache.serve.nvrtc import NVRTCServing
    from gpucache.serve.opencl import OpenCLServing
    from gpucache.serve.server import Handlers, Later
    from gpucache.settings import Settings


_REST_S = 60.0
"""How long the end of a command waits until its last entries are sent, and its start for the push."""


class Follower:
    """A push next to a command, in its own process, which ends with this one."""

    def __init__(self, url: str, root: "str | None", *, sources: bool) -> None:
        """Wait until the push has listed the caches, as it sends only later entries. Raises OSError."""
        import select
        import subprocess
        import sys

        ready, theirs = os.pipe()
        words = [sys.executable, "-P", "-m", "gpucache", *(("--root", root) if root else ()), "push", url]
        try:
            self._process = subprocess.Popen(
                [*words, "--cache", "all", "--follow", *(("--sources",) if sources else ())],
                env={**os.environ, FOLLOWED: f"{os.getpid()} {theirs}"},
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,  # an interrupt at the terminal is for the command
                pass_fds=[theirs],
            )
        finally:
            os.close(theirs)
        try:
            select.select([ready], [], [], _REST_S)  # its end, if it fails
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(ready)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """Make it send the rest and wait; returns why that failed, unless it printed that itself."""
        import subprocess

        self._process.terminate()
        try:
            code = self._process.wait(_REST_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"not all entries were sent within {_REST_S:g} s; 'gpucache push' sends the rest"
        return f"not all entries were sent (signal {-code})" if code < 0 else ""


def starter() -> str:
    """The program in C that starts a plain command; empty if it is not built."""
    path = os.path.join(BUILT, "gpucache_run")
    return path if os.access(path, os.X_OK) else ""


def joined(own: str, systems: "Sequence[str]") -> str:
    """Roots as libraries read them, the user's first; empty if one contains a colon."""
    roots = (own, *systems)
    return "" if any(":" in root for root in roots) else ":".join(roots)


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
        adopted: "Adopted | None" = None,
        sources: "KeptSources | None" = None,
    ) -> None:
        """The index of ``roots`` serves the command; ``root`` is the cache's place from the option.

        With ``adopted`` the command runs already. ``sources`` keeps its programs as files.

        ``alone`` is the reason not to use either. Without ``nvrtc`` it gets no auditor. ``warn``
        gets sentences for the user, from any thread.
        """
        self._warn = warn
        self._alone = alone
        self._has_nvrtc = nvrtc
        self.command = command
        self._root = root
        self._adopted = adopted
        self._sources = sources
        self._listening = Listening(self._answer, roots)
        self._ended: Plain = (0, 0, "", False, ())
        self._has_ended = False
        self._error: Exception | None = None
        self._libraries: Libraries | None = None
        self.opencl: Later[OpenCLServing] | None = None
        self.nvrtc: Later[NVRTCServing] | None = None
        """The server of NVRTC's compiles; None if it was not needed."""

    def run(self, environ: "Mapping[str, str]") -> None:
        """Run it, and leave signals blocked; an error before its start is raised by ``ended``.

        An error while an adopted command runs is raised here: somebody has to wait for it.
        """
        try:
            self._libraries = libraries(nvrtc=self._has_nvrtc)
            self._ended = await_command(
                self.command, environ, self._libraries, self._listening, self._alone, self._adopted
            )
            self._has_ended = True
        except Exception as error:
            if self._adopted is not None:
                raise
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
        return self._listening.binaries + (
            self.opencl.made.binaries if self.opencl and self.opencl.made else 0
        )

    @property
    def in_library(self) -> tuple[int, int]:
        """Hits and misses of gpucache's library in the command's programs."""
        return self._listening.within, self._listening.missed

    @property
    def code(self) -> "int | None":
        """The command's exit code, 128 and the number of a signal that ended it; None before its end."""
        return self._ended[0] if self._has_ended else None

    def end_as(self) -> int:
        """End by the command's signal; gives its exit code if there was none."""
        if self._ended[1]:
            end_by(self._ended[1])
        return self._ended[0]

    def finish(self) -> "tuple[Intercepted, ...]":
        """The outcome of each build, in the order in which the command asked for them."""
        from gpucache.answers.run import Intercepted, RunResult

        hits = [_read(hit) for hit in self._listening.hits]
        if hits:
            from gpucache.engine.stores import note_process

            note_process(self._services().stores(), len(hits), 0, sum(saved for _, _, saved, *_ in hits))
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

    def _services(self) -> "Services":
        from gpucache.cli.globals import in_folder
        from gpucache.settings import read_settings

        settings = in_folder(read_settings(os.environ, root=self._root))
        from gpucache.answers.run_lines import command_name

        name = command_name(self.command)
        return Services(settings, name, self._libraries or Libraries(), self._warn, self._sources)

    def _answer(self, listener: int, place: Listening, first: int) -> None:
        from gpucache.serve.server import answer_all

        answer_all(self._answering(), listener, place, first)

    def _answering(self) -> "Handlers":
        from gpucache.serve.server import Later
        from gpucache.serve.wire import NVRTC, OPENCL

        make = self._services()
        self.opencl, self.nvrtc = Later(make.opencl, OPENCL), Later(make.nvrtc, NVRTC)
        return {**self.opencl.handlers, **self.nvrtc.handlers}


def _read(hit: bytes) -> tuple[int, int, int, str, str, str, bool]:
    """A hit of the index: start, duration, saved time, key, target and program, and whether it is whole.

    The last is true for a compiler that goes on at launches and has compiled all kernels ahead.
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
        sources: "KeptSources | None" = None,
    ) -> None:
        """``warn`` gets sentences for the user."""
        self._sources = sources
        self._settings = settings
        self._command = command
        self._libraries = libraries
        self._warn = warn

    def opencl(self) -> "OpenCLServing":
        from gpucache.serve.devices import Devices

        stores = self.stores()
        devices = Devices(stores, wait_s=probe_s())
        devices.begin()  # which takes longer than the rest
        from gpucache.serve.opencl import OpenCLServing
        from gpucache.serve.telling import said_at

        serving = OpenCLServing(stores, devices, self._libraries, said_at(self._settings.log))
        serving.sources = self._sources
        return serving

    def nvrtc(self) -> "NVRTCServing":
        from gpucache.serve.nvrtc import NVRTCServing
        from gpucache.serve.telling import said_at

        serving = NVRTCServing(self.stores(), said_at(self._settings.log))
        serving.sources = self._sources
        return serving

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
