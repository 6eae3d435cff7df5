"""The command line: one file per verb, which only parses, calls, renders and gives the exit code.

Must not load a GPU stack, numpy or rich to show help: every verb imports what it needs when it runs.
Owns the entry point, which imports nothing before it is ready for Ctrl-C.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpucache.cli.running import Running

_ADOPTED = "GPUCACHE_RUN_ADOPTED"
"""The state of a command that ``native/run.c`` has started."""
_ALLOCATIONS = 100_000
"""The number of new objects, less freed ones, after which Python collects garbage."""


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the command line and return the exit code. An interrupt ends it with one sentence at any moment."""
    if arguments is None:
        import gc

        # Modules and entries stay alive: collecting garbage among them took a tenth of the start.
        gc.set_threshold(_ALLOCATIONS)
    code = _run(arguments)
    if arguments is None:  # this is the whole process
        if "gpucache.cli.process" not in sys.modules:
            _leave(code)
        from gpucache.errors import ExitCode
        from gpucache.host import interrupts

        interrupted = code == ExitCode.INTERRUPTED or interrupts.disarmed()
        interrupts.ignore()
        gc.freeze()  # everything is freed at exit: a collection then took another tenth
        if interrupted or _has_others():
            _leave(code)
        try:
            sys.stderr.flush()
        except OSError:
            _leave(code)  # Python's code would be 120
    return code


def _is_plain(words: "list[str]") -> bool:
    """Whether ``native/run.c`` knows all options of ``run`` that are before its command."""
    if words[:1] == ["--cache-file"]:
        return len(words) > 1 and _is_plain(words[2:])
    first = words[0] if words else ""
    is_known = first in ("-q", "--quiet") or first.startswith("--cache-file=")
    return first == "--" or (is_known and _is_plain(words[1:]))


def _started(own: "list[str]", state: "str | None") -> "Running | None":
    """A command that ``native/run.c`` started, and that this process goes on with.

    Without a state it has not been asked yet, and takes the place of this process. It returns what it cannot
    do with a negative number as the process.
    """
    from gpucache.cli.running import Running, starter

    if state is None:
        from gpucache.errors import UsageError
        from gpucache.settings import file_defaults

        try:
            found = file_defaults(os.environ)
        except UsageError:
            return None  # which Python says
        os.environ.update(found)  # as the program in C knows variables alone
        words = [sys.executable, *sys.orig_argv[1 : -len(own)]]
        # A program that sets sys.argv cannot be started again by its words.
        if sys.stdout and sys.orig_argv[-len(own) :] == own and (program := starter()):
            try:
                sys.stdout.flush()
                os.execv(program, [program, f"--by={len(words)}", *words, *own])
            except OSError:
                return None  # Python does it all
        return None
    pid, listener, lock, folder = state.split(":", 3)
    if int(pid) < 0:
        return None
    running = Running(own[own.index("--") + 1 :], "", adopted=(int(pid), int(listener), int(lock), folder))
    running.run(os.environ)
    return running


def _outlived(state: str, error: BaseException) -> int:
    """Wait for a command that ``native/run.c`` started; gives its exit code."""
    pid, listener, _ = state.split(":", 2)
    from contextlib import suppress

    told = f"unexpected {type(error).__name__}: {error}; the command goes on without answers"
    with suppress(OSError):  # nobody may read it
        sys.stderr.write(f"gpucache: {told}\n")
    with suppress(OSError):  # it may be closed already
        os.close(int(listener))  # programs that wait for a reply go on without one
    code = os.waitstatus_to_exitcode(os.waitpid(int(pid), 0)[1])
    return code if code >= 0 else 128 - code


def _leave(code: int) -> None:
    """End this process after everything else is done.

    Python itself forgets the exit code if an interrupt came during an ``exec``, which imports often run; and
    it may crash if a thread that is not joined still imports, as when a command ends before the modules of
    its server are loaded.
    """
    try:
        from gpucache.host.scratch import end_others

        end_others()
        for stream in (sys.stdout, sys.stderr):
            try:  # importing contextlib takes half as long as a plain run imports
                stream.flush()
            except (OSError, ValueError):
                continue
    finally:  # whatever comes, an interrupt too
        os._exit(code)


def _has_others() -> bool:
    """Whether threads are left that Python does not wait for: at its end it crashes if one still imports."""
    import threading

    waited_for = {one.ident for one in threading.enumerate() if not one.daemon}
    return not sys._current_frames().keys() <= waited_for


def _run(arguments: "Sequence[str] | None") -> int:
    running, state = None, os.environ.pop(_ADOPTED, None)
    try:
        own = sys.argv[1:] if arguments is None else list(arguments)
        if arguments is None and own[:1] == ["run"] and _is_plain(own[1:]):
            running = _started(own, state)
        from gpucache.cli.process import main as run

        code = run(own, running)
        return code if running is None or running.code is None else running.code
    except BaseException as error:  # while modules were imported, or before or after the verb
        if running is not None and running.code is not None:  # the report is not worth the command's code
            return running.end_as()
        if state and not state.startswith("-"):
            return _outlived(state, error)
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise  # an interrupt while a class is made is the cause of another error
        from gpucache.host import interrupts

        interrupts.disarm()
        from gpucache.cli import streams
        from gpucache.cli.process import interrupted

        streams.complain("")  # the terminal wrote ^C on this line
        return interrupted(sys.argv[1:] if arguments is None else arguments)
