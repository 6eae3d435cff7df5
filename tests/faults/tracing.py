"""Kills a function between two of its system calls; Linux only.

Uses the kernel itself (``ptrace``) rather than strace, which would start an interpreter for every trial.
"""

import ctypes
import os
import signal
import struct
from collections.abc import Callable, Collection

_TRACE_ME, _NEXT_CALL, _SET_OPTIONS, _CALL_INFO = 0, 24, 0x4200, 0x420E
_CALL = struct.Struct("=B3xIQQQ6Q")
"""The beginning of ``struct ptrace_syscall_info`` before a call: kind, architecture, two pointers, the number
of the call and its arguments."""
WRITING = {
    1: "write", 18: "pwrite64", 20: "writev", 76: "truncate", 77: "ftruncate", 74: "fsync", 73: "flock",
    82: "rename", 264: "renameat", 316: "renameat2", 86: "link", 265: "linkat", 87: "unlink", 263: "unlinkat",
    83: "mkdir", 258: "mkdirat", 84: "rmdir", 90: "chmod", 91: "fchmod", 268: "fchmodat", 93: "fchown",
    260: "fchownat", 280: "utimensat", 257: "openat",
}  # fmt: skip
"""The calls on x86-64 that change files, by number; of ``openat`` those that create one."""
_TELL_CALLS, _DIE_WITH_US = 1, 0x100000
_CALL_STOP = signal.SIGTRAP | 0x80
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, child: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, child, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace is refused")


def _counts(child: int, which: Collection[int]) -> bool:
    """Whether a call that begins is one of the given ones."""
    info = ctypes.create_string_buffer(128)
    if _libc.ptrace(_CALL_INFO, child, ctypes.c_void_p(len(info)), info) < 0:
        raise OSError(ctypes.get_errno(), "ptrace tells no call")
    *_, call, _, _, flags, _, _, _ = _CALL.unpack_from(info)
    return call in which and (WRITING.get(call) != "openat" or bool(flags & os.O_CREAT))


def killed_before_call(
    operation: Callable[[], object], number: int, which: Collection[int] | None = None
) -> bool:
    """Run an operation in a child that dies before its system call of a number, of all or of some; whether it
    made as many."""
    child = os.fork()
    if child == 0:
        try:
            _ptrace(_TRACE_ME)
            os.kill(os.getpid(), signal.SIGSTOP)
            operation()
        except BaseException as error:  # the exit status reports it; it must not run on as a second parent
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
            counts = entering and (which is None or _counts(child, which))
            calls, entering, passed = calls + counts, not entering, 0
    os.kill(child, signal.SIGKILL)
    while not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        pass
    return True
