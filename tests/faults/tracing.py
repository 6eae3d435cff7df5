"""Kills a function between two of its system calls; Linux alone.

Asks the kernel itself (``ptrace``) rather than strace, which would start an interpreter for every trial.
"""

import ctypes
import os
import signal
from collections.abc import Callable

_TRACE_ME, _NEXT_CALL, _SET_OPTIONS = 0, 24, 0x4200
_TELL_CALLS, _DIE_WITH_US = 1, 0x100000
_CALL_STOP = signal.SIGTRAP | 0x80
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, child: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, child, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace is refused")


def killed_before_call(operation: Callable[[], object], number: int) -> bool:
    """Run an operation in a child that dies before its system call of a number; whether it made as many."""
    child = os.fork()
    if child == 0:
        try:
            _ptrace(_TRACE_ME)
            os.kill(os.getpid(), signal.SIGSTOP)
            operation()
        except (
            BaseException
        ) as error:  # it is told by the exit status, and must not run on as a second parent
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
    _ptrace(_SET_OPTIONS, child, _TELL_CALLS | _DIE_WITH_US)
    calls, entering, passed = 0, True, 0
    while calls < number:
        _ptrace(_NEXT_CALL, child, passed)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            if status:
                raise RuntimeError(f"the operation failed by itself: {status}")
            return False
        passed = os.WSTOPSIG(status)
        if passed == _CALL_STOP:
            calls, entering, passed = calls + entering, not entering, 0
    os.kill(child, signal.SIGKILL)
    while not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        pass
    return True
