"""Tests of which files a thread sees."""

import ctypes
import os
import threading
from collections.abc import Callable

import pytest

from gpucache.host.file_stamps import files_seen
from tests.unprivileged import needs_root

_VERSION = 0x20080522


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0


def _read_as_another_user(libc: ctypes.CDLL) -> None:
    libc.setfsuid(os.geteuid() + 1)


@needs_root
@pytest.mark.parametrize("change", [_drop_capabilities, _read_as_another_user])
def test_a_thread_with_other_rights_sees_other_files(change: Callable[[ctypes.CDLL], None]) -> None:
    """One of them may be able to read a file that another cannot, under the same path."""
    seen = [files_seen()]

    def ask() -> None:
        seen.append(files_seen())
        change(ctypes.CDLL(None))
        seen.append(files_seen())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen[0] == seen[1] != seen[2]
