"""A command that runs as without gpucache: in the foreground, on our terminal, in our process group.

Owns its start, the signals that are passed on, and its end. A signal sent to this process is passed on to the
command; a signal from the terminal reaches the command by itself. When the terminal stops the command, this
process stops too, so that a shell sees its job stopped. If this process is killed the command goes on.
Imports next to nothing, as every command under ``gpucache run`` waits for it. Must not know the command's
requests.
"""

import _signal as signal  # type: ignore[import-not-found] # signal's enumerations take as long as all of this
import os
import sys

from gpucache.serve.environment import intercepted, own_filters
from gpucache.serve.listening import Listening

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpucache.answers.run import Ended
    from gpucache.serve.environment import Libraries
    from gpucache.serve.server import Handlers

Plain = tuple[int, int, str, bool, tuple[str, ...]]
Adopted = tuple[int, int, int, str]
"""A command that ``native/run.c`` started in this process: its process, the descriptors of the socket and of
the directory's lock, and the directory."""
PASSED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
_INTERRUPTS = ("SIGINT", "SIGTERM", "SIGHUP")
_TERMINAL_STOPS = ("SIGTSTP", "SIGTTIN", "SIGTTOU")
_PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")
_BY_KERNEL = 0x80
"""``SI_KERNEL``: the code of signals from the terminal, sent to every process in its foreground."""


def run_command(
    argv: "Sequence[str]",
    environ: "Mapping[str, str]",
    libraries: "Libraries",
    handlers: "Handlers",
) -> "Ended":
    """Run a command to its end while handlers serve it; raises CommandError if it cannot be started.

    Where no socket can be made, so that no request could arrive, the command runs as without gpucache.
    """
    from functools import partial

    from gpucache.answers.run import Ended
    from gpucache.serve.server import answer_all

    return Ended(*await_command(argv, environ, libraries, Listening(partial(answer_all, handlers))))


def await_command(
    argv: "Sequence[str]",
    environ: "Mapping[str, str]",
    libraries: "Libraries",
    listening: Listening,
    alone: str = "",
    adopted: "Adopted | None" = None,
) -> Plain:
    """``run_command`` with the plain values of ``Ended``. With ``alone``, the reason, nothing is served.

    A command that is adopted runs already.

    Afterwards signals stay blocked until ``heed``, so that none comes before the command's end is known.
    """
    if sys.platform != "linux":
        from gpucache.errors import UsageError

        raise UsageError(
            "'gpucache run' needs Linux; elsewhere programs call gpucache.opencl or gpucache.cuda"
        )
    numbers = _blocked()
    # These are blocked, and threads that are started inherit that. The command gets the mask from before.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        try:
            if adopted:
                listening.adopt(*adopted[1:])
            elif not alone:
                path = listening.open()
                environ = intercepted(environ, path, libraries, listening.roots, own_filters())
        except Exception as error:
            alone = _told(error)
        try:
            pid = adopted[0] if adopted else _start(argv, environ, frozenset(map(int, before)))
            code, number = _wait(pid, numbers)
        finally:
            try:
                listening.close()
            except Exception as error:
                listening.error = error
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    return code, number, alone, listening.loaded, tuple(listening.refused)


def heed() -> None:
    """Take signals again, which are blocked since the command began.

    Whoever does so is ready for an interrupt: it may no longer change how this process ends.
    """
    numbers = _blocked()
    for name in _INTERRUPTS:
        if signal.getsignal(getattr(signal, name)) == signal.SIG_DFL:
            signal.signal(getattr(signal, name), signal.default_int_handler)
    while signal.sigtimedwait(numbers, 0) is not None:
        pass  # it was for the command, which has ended
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def end_by(number: int) -> None:
    """End this process by the signal that ended the command, without a core of ours."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _blocked())
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _blocked() -> frozenset[int]:
    return frozenset(int(getattr(signal, name)) for name in (*PASSED_ON, "SIGCHLD"))


def _told(error: Exception) -> str:
    """Why no socket can be made; raises an error that is gpucache's own defect."""
    from gpucache.errors import UsageError

    if isinstance(error, OSError | UsageError | RuntimeError):  # the last where no thread is left
        return str(error)
    raise error


def _start(argv: "Sequence[str]", environ: "Mapping[str, str]", mask: frozenset[int]) -> int:
    defaults = [getattr(signal, name) for name in _PYTHON_IGNORES]
    try:
        try:
            return os.posix_spawnp(argv[0], list(argv), environ, setsigmask=mask, setsigdef=defaults)
        except OSError as error:
            import errno
            import shutil

            if error.errno != errno.ENOEXEC:
                raise
        # As shells do it, and C programs that start commands.
        script = argv[0] if "/" in argv[0] else shutil.which(argv[0]) or argv[0]
        line = ["/bin/sh", script, *argv[1:]]
        return os.posix_spawn(line[0], line, environ, setsigmask=mask, setsigdef=defaults)
    except (OSError, ValueError) as error:
        from gpucache.errors import CommandError

        raise CommandError.of(argv[0], error) from None


def _wait(pid: int, numbers: frozenset[int]) -> tuple[int, int]:
    """Pass signals on until the command has ended."""
    stops = [getattr(signal, name) for name in _TERMINAL_STOPS]
    while True:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFEXITED(status):
            return os.WEXITSTATUS(status), 0
        if found and os.WIFSIGNALED(status):
            return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
        if found and os.WSTOPSIG(status) in stops:
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell has both go on
            continue
        came = signal.sigwaitinfo(numbers)
        if came.si_signo != signal.SIGCHLD and came.si_code != _BY_KERNEL:
            try:
                os.kill(pid, came.si_signo)
            except ProcessLookupError:
                continue
