"""A command that runs as it would without us: in the foreground, on our terminal, in our process group.

Owns its start, the signals that are passed on, and its end. A signal that somebody sends to this process goes
on to the command; what the terminal sends reaches the command by itself. When the terminal stops the command,
this process stops too, so that a shell sees its job stopped. If this process is killed the command goes on.
Must not know what the command asks for: services do.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event
from typing import Protocol

from gpucache.errors import CommandError, UsageError
from gpucache.intercept.environment import Libraries, intercepted
from gpucache.intercept.server import Handler, Handlers, serve
from gpucache.intercept.wire import Kind
from gpucache.outcomes import Ended, Intercepted

_PASSED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
_TERMINAL_STOPS = ("SIGTSTP", "SIGTTIN", "SIGTTOU")
_PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")
_MAKING_S = 3.0
"""How long a question may wait until the services are made: less than the command's own time-out."""
_BY_KERNEL = 0x80
"""``SI_KERNEL``: what the terminal sends, to every process in its foreground."""


class Service(Protocol):
    """Answers some of what a command asks for."""

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        ...

    def begin(self) -> None:
        """Called when the command has been started; its questions wait for this."""
        ...

    def finish(self) -> Sequence[Intercepted]:
        """Called when the command has ended and no handler runs any more: what became of each build."""
        ...


class _Later(Mapping[Kind, Handler]):
    """Handlers that are made while the command starts: whoever asks before waits for them."""

    def __init__(self) -> None:
        self._made = Event()
        self._handlers: Handlers = {}

    def fill(self, handlers: Handlers) -> None:
        """Answer by some handlers from now on."""
        self._handlers = handlers
        self._made.set()

    def __getitem__(self, kind: Kind) -> Handler:
        self._made.wait(_MAKING_S)
        return self._handlers[kind]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


def run_command(
    argv: Sequence[str],
    environ: Mapping[str, str],
    libraries: Libraries,
    services: Callable[[], Sequence[Service]],
) -> Ended:
    """Run a command to its end while services answer it; raises CommandError if it cannot be started.

    The services are made once the command has been started, as it takes some time to its first question.
    What goes wrong with them is raised after its end.
    """
    if sys.platform != "linux":
        raise UsageError(
            "'gpucache run' needs Linux; elsewhere programs call gpucache.opencl or gpucache.cuda"
        )
    later = _Later()
    with _held() as (numbers, mask), serve(later) as socket:  # threads inherit the mask of signals
        pid = _start(argv, intercepted(environ, socket, libraries), mask)
        try:
            made = services()
            for service in made:
                service.begin()
            later.fill({kind: handler for service in made for kind, handler in service.handlers.items()})
        except Exception:
            later.fill({})
            _wait(pid, numbers)
            raise
        return _wait(pid, numbers)


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
