"""A command that runs as it would without us: in the foreground, on our terminal, in our process group.

Owns its start, the signals that are passed on, and its end. A signal that somebody sends to this process goes
on to the command; what the terminal sends reaches the command by itself. When the terminal stops the command,
this process stops too, so that a shell sees its job stopped. If this process is killed the command goes on.
Must not know what the command asks for: services do, each made when the command first asks for it.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Generic, Protocol, TypeVar

from gpucache.errors import CommandError, UsageError
from gpucache.intercept.environment import Libraries, intercepted
from gpucache.intercept.server import HEARD, PASSED, Handler, Handlers, Reply, serve
from gpucache.intercept.wire import Fields, Kind
from gpucache.outcomes import Ended, Intercepted, RunResult

_PASSED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
_TERMINAL_STOPS = ("SIGTSTP", "SIGTTIN", "SIGTTOU")
_PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")
_LOADED = (Kind.LOADED, Kind.NVRTC_LOADED)
_BUILDS = (Kind.BUILD, Kind.COMPILE)
_MAKING_S = 2.0
"""How long a question may wait until its service is made: with what follows less than the time-out."""
_BY_KERNEL = 0x80
"""``SI_KERNEL``: what the terminal sends, to every process in its foreground."""


class Service(Protocol):
    """Answers some of what a command asks for."""

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        ...

    def finish(self) -> Sequence[Intercepted]:
        """Called when the command has ended and no handler runs any more: what became of each build."""
        ...


S = TypeVar("S", bound=Service)


class Later(Generic[S]):
    """A service that is made when it is first asked: many commands ask nothing, and making it takes a while.

    A program's library says early that there may be questions, so that it is made while a driver starts.
    """

    def __init__(self, make: Callable[[], S], kinds: Iterable[Kind]) -> None:
        self.made: S | None = None
        self._make = make
        self._kinds = tuple(kinds)
        self._error: Exception | None = None
        self._begun = Lock()
        self._ready = Event()
        self._late = 0

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {kind: self._announced if kind in _LOADED else self._asked(kind) for kind in self._kinds}

    def finish(self) -> Sequence[Intercepted]:
        """What became of each build, or why none was served: the command has run all the same."""
        if self._error is not None:
            reason = f"what answers builds could not be started: {self._error}"
            return (Intercepted("", "", RunResult.PASSED, reason=reason),)
        late = Intercepted("", "", RunResult.PASSED, reason="what answers builds was not ready in time")
        return (*(() if self.made is None else self.made.finish()), *[late] * self._late)

    def _announced(self, _: Fields) -> Reply:
        self._begin()
        return HEARD

    def _asked(self, kind: Kind) -> Handler:
        def answer(fields: Fields) -> Reply:
            self._begin()
            in_time = self._ready.wait(_MAKING_S)
            if kind in _BUILDS and not in_time:
                self._late += 1  # two threads may count one, which is told all the same
            return PASSED if self.made is None else self.made.handlers[kind](fields)

        return answer

    def _begin(self) -> None:
        """Make the service, in another thread: whoever asks waits no longer than is fit."""
        if self._begun.acquire(blocking=False):
            Thread(target=self._run, name="gpucache-service", daemon=True).start()

    def _run(self) -> None:
        try:
            self.made = self._make()
        except Exception as error:
            self._error = error
        finally:
            self._ready.set()


def run_command(
    argv: Sequence[str], environ: Mapping[str, str], libraries: Libraries, services: Iterable[Service]
) -> Ended:
    """Run a command to its end while services answer it; raises CommandError if it cannot be started.

    Where nobody could be heard, because no socket can be made here, the command runs as it would without us.
    """
    if sys.platform != "linux":
        raise UsageError(
            "'gpucache run' needs Linux; elsewhere programs call gpucache.opencl or gpucache.cuda"
        )
    handlers = {kind: handler for service in services for kind, handler in service.handlers.items()}
    alone = ""
    with _held() as (numbers, mask), ExitStack() as ends:  # threads inherit the mask of signals
        try:
            environ = intercepted(environ, ends.enter_context(serve(handlers)), libraries)
        except (OSError, UsageError, RuntimeError) as error:  # the last where no thread is left
            alone = str(error)
        return replace(_wait(_start(argv, environ, mask), numbers), alone=alone)


@contextmanager
def _held() -> Iterator[tuple[frozenset[signal.Signals], frozenset[int]]]:
    """Hold the signals that are passed on; gives them, and the mask that the command shall have."""
    numbers = frozenset(getattr(signal, name) for name in (*_PASSED_ON, "SIGCHLD"))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield numbers, frozenset(map(int, before))
    finally:
        while signal.sigtimedwait(numbers, 0) is not None:
            pass  # it was for the command, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(argv: Sequence[str], environ: Mapping[str, str], mask: frozenset[int]) -> int:
    defaults = [getattr(signal, name) for name in _PYTHON_IGNORES]
    try:
        return os.posix_spawnp(argv[0], list(argv), environ, setsigmask=mask, setsigdef=defaults)
    except (OSError, ValueError) as error:
        raise CommandError.of(argv[0], error) from None


def _wait(pid: int, numbers: frozenset[signal.Signals]) -> Ended:
    """Pass signals on until the command has ended."""
    stops = [getattr(signal, name) for name in _TERMINAL_STOPS]
    while True:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFEXITED(status):
            return Ended(os.WEXITSTATUS(status))
        if found and os.WIFSIGNALED(status):
            return Ended(128 + os.WTERMSIG(status), os.WTERMSIG(status))
        if found and os.WSTOPSIG(status) in stops:
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell has both go on
            continue
        came = signal.sigwaitinfo(numbers)
        if came.si_signo != signal.SIGCHLD and came.si_code != _BY_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(pid, came.si_signo)
