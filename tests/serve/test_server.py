"""The server: every request has a reply, whatever its bytes and whatever its handler does."""

import os
import socket
import stat
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gpucache.errors import UsageError
from gpucache.serve.listening import PATH_BYTES_CAP, Listening
from gpucache.serve.server import THREAD, Reply, answer_all, serve
from gpucache.serve.wire import Fields, Frame, Kind, WireError, encode
from tests.patience import PATIENCE_S, wait_until
from tests.serve.client import ask, ask_raw
from tests.unprivileged import as_nobody, needs_root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is for Linux")
_PASS = Frame(Kind.PASS, (b"",))


def _echo(fields: Fields) -> Reply:
    return Reply(Kind.HIT, fields.rest())


def _answering() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def _raise(fields: Fields) -> Reply:
    raise RuntimeError("a defect of the handler")


def test_a_handler_answers_its_kind() -> None:
    """The program reads exactly the handler's reply, binaries larger than a socket's buffer too."""
    binary = bytes(range(256)) * 8192
    with serve({Kind.BUILD: _echo}) as path:
        assert ask(path, Kind.BUILD, b"source", binary) == Frame(Kind.HIT, (b"source", binary))


@pytest.mark.parametrize("kind", [Kind.COMPILE, 0x7777])
def test_a_kind_that_nobody_handles_is_passed(kind: int) -> None:
    """A program whose library is newer than this server goes on as without us."""
    with serve({Kind.BUILD: _echo}) as path:
        assert ask(path, kind, b"source") == _PASS


def test_a_handler_that_raises_passes_and_the_server_goes_on() -> None:
    """Our own defect costs one hit."""
    with serve({Kind.BUILD: _raise, Kind.OTHER: _echo}) as path:
        assert ask(path, Kind.BUILD) == _PASS
        assert ask(path, Kind.OTHER, b"x") == Frame(Kind.HIT, (b"x",))


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x04\0\0\0\x09\0\x01\0"]
)
def test_what_is_no_frame_is_passed(data: bytes) -> None:
    """Bytes of any kind get a reply, and so does the next request."""
    with serve({Kind.OTHER: _echo}) as path:
        assert ask_raw(path, data) == _PASS
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)


def test_whoever_hangs_up_harms_nobody() -> None:
    """A program that is killed in its request does not affect others."""
    with serve({Kind.OTHER: _echo}) as path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(path))
            connection.sendall(encode(Frame(Kind.OTHER, (b"x",)))[:6])
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)


def test_requests_are_answered_at_the_same_time() -> None:
    """A slow one does not delay the next."""
    both = threading.Barrier(2)

    def meet(fields: Fields) -> Reply:
        both.wait(PATIENCE_S)
        return Reply(Kind.OK)

    answers: list[Frame] = []
    with serve({Kind.BUILD: meet}) as path:
        threads = [threading.Thread(target=lambda: answers.append(ask(path, Kind.BUILD))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [Frame(Kind.OK)] * 2


def test_what_follows_a_reply_does_not_hold_it_up_and_is_finished() -> None:
    """The program has its reply first; the end of the server waits for the work begun."""
    told = threading.Event()
    done: list[bool] = []

    def after() -> None:
        done.append(told.wait(PATIENCE_S))

    with serve({Kind.BUILT: lambda _: Reply(Kind.OK, then=after)}) as path:
        assert ask(path, Kind.BUILT) == Frame(Kind.OK)
        told.set()
    assert done == [True]


def test_work_after_a_reply_lets_the_next_questions_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program builds again soon after a build; it waits for no entry to be written."""
    order: list[str] = []
    paused = threading.Event()

    def other(_: Fields) -> Reply:
        order.append("question")
        return Reply(Kind.OK)

    def pause(_: float) -> None:
        if not order:
            assert ask(path, Kind.OTHER) == Frame(Kind.OK)
        paused.set()

    monkeypatch.setattr("gpucache.serve.server._QUIET_S", 3600.0)
    monkeypatch.setattr("gpucache.serve.server._DELAY_S", 3600.0)
    monkeypatch.setattr("gpucache.serve.server.time.sleep", pause)
    work = Reply(Kind.OK, then=lambda: order.append("work"))
    with serve({Kind.BUILT: lambda _: work, Kind.OTHER: other}) as path:
        assert ask(path, Kind.BUILT) == Frame(Kind.OK)
        assert paused.wait(PATIENCE_S)
    assert order == ["question", "work"]


def test_work_after_a_reply_is_done_though_questions_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a quiet moment only so long."""
    done = threading.Event()
    monkeypatch.setattr("gpucache.serve.server._QUIET_S", 3600.0)
    monkeypatch.setattr("gpucache.serve.server._DELAY_S", 0.0)
    with serve({Kind.BUILT: lambda _: Reply(Kind.OK, then=done.set)}) as path:
        assert ask(path, Kind.BUILT) == Frame(Kind.OK)
        assert done.wait(PATIENCE_S)


def test_work_has_waited_while_the_work_before_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it piles up while questions keep coming, with its binaries and the locks of its keys."""
    pauses: list[str] = []

    def ask_until_it_is_closed() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(path))
            connection.sendall(encode(Frame(Kind.BUILT, ())))
            while connection.recv(1 << 10):
                pass

    def pause(_: float) -> None:
        for _ in range(0 if pauses else 3):
            ask_until_it_is_closed()
        pauses.append("the clock goes on")

    clock = SimpleNamespace(monotonic=lambda: 100.0 * len(pauses), sleep=pause)
    monkeypatch.setattr("gpucache.serve.server._QUIET_S", 1e9)
    monkeypatch.setattr("gpucache.serve.server._DELAY_S", 50.0)
    monkeypatch.setattr("gpucache.serve.server.time", clock)
    all_done = threading.Semaphore(0)
    with serve({Kind.BUILT: lambda _: Reply(Kind.OK, then=all_done.release)}) as path:
        ask_until_it_is_closed()
        for _ in range(4):
            assert all_done.acquire(timeout=PATIENCE_S)
        assert len(pauses) == 1


def test_threads_that_wait_for_questions_end_when_there_are_enough() -> None:
    """Many questions at once leave few threads."""
    many = 12
    all_there = threading.Barrier(many)

    def meet(_: Fields) -> Reply:
        all_there.wait(PATIENCE_S)
        return Reply(Kind.OK)

    with serve({Kind.BUILD: meet, Kind.OTHER: _echo}) as path:
        asking = [threading.Thread(target=ask, args=(path, Kind.BUILD)) for _ in range(many)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        wait_until(lambda: len(_answering()) <= 4)
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)
    wait_until(lambda: not _answering())


def test_the_end_waits_for_no_request_that_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a command has left behind may be stopped in the middle of one, the first too."""
    monkeypatch.setattr("gpucache.serve.server.drain_s", lambda: 0.0)
    monkeypatch.setattr("gpucache.serve.listening.drain_s", lambda: PATIENCE_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        with serve({Kind.OTHER: _echo}) as path:
            connection.connect(str(path))
            assert ask(path, Kind.OTHER) == Frame(Kind.HIT)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
    wait_until(lambda: not _answering())


def test_the_end_may_come_while_a_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program ends right after a message that needs no reply, which a thread takes for another to wait."""
    start, starting, replied = threading.Thread.start, threading.Event(), threading.Event()

    def start_late(thread: threading.Thread) -> None:
        if asking and thread.name == THREAD:
            starting.set()
            wait_until(lambda: replied.is_set() or listening.error is not None)
        start(thread)

    def answer(_: Fields) -> Reply:
        wait_until(lambda: listening.ended)
        return Reply(Kind.OK)

    def wait_for_reply() -> None:
        with suppress(OSError):  # it came after the end
            ask(path, Kind.BUILD)
            replied.set()

    listening = Listening(partial(answer_all, {Kind.BUILD: answer, Kind.OTHER: _echo}))
    path, asking = Path(listening.open()), list[threading.Thread]()
    ask(path, Kind.OTHER)
    monkeypatch.setattr(threading.Thread, "start", start_late)
    while not starting.wait(0.01):
        asking.append(threading.Thread(target=wait_for_reply))
        start(asking[-1])
    listening.close()
    assert (listening.error, _answering()) == (None, [])
    for thread in asking:
        thread.join()


def test_a_server_without_a_thread_has_them_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on without it meanwhile: one thread alone would have all wait for each."""

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with serve({Kind.OTHER: _echo}) as path:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            for _ in range(2):
                with pytest.raises((OSError, WireError)):
                    ask(path, Kind.OTHER)
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)


def test_a_reply_that_cannot_be_sent_leaves_the_server() -> None:
    """No memory may be left for the reply's bytes."""
    broken = Reply(Kind.HIT, (cast("bytes", None),))
    with serve({Kind.BUILD: lambda _: broken, Kind.OTHER: _echo}) as path:
        for _ in range(5):
            with pytest.raises((OSError, WireError)):
                ask(path, Kind.BUILD)
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)


def test_what_is_told_is_heard_after_the_end() -> None:
    """A program waits for no reply to a report, and may have ended before it is read."""
    heard: list[bytes] = []

    def hear(fields: Fields) -> Reply:
        heard.append(fields.take())
        return Reply(Kind.OK)

    told = [b"%d" % number for number in range(50)]
    with serve({Kind.OTHER: hear}) as path:
        for one in told:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(path))
                connection.sendall(encode(Frame(Kind.OTHER, (one,))))
    assert sorted(heard) == sorted(told)


def test_what_follows_a_reply_may_fail() -> None:
    """The server goes on."""

    def fail() -> None:
        raise OSError("the disk is full")

    with serve({Kind.BUILT: lambda _: Reply(Kind.OK, then=fail)}) as path:
        assert ask(path, Kind.BUILT) == Frame(Kind.OK)
        assert ask(path, Kind.BUILT) == Frame(Kind.OK)


def test_only_this_user_may_enter_its_folder() -> None:
    """No other program can connect, and nothing is left behind."""
    with serve({}) as path:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


@needs_root
def test_another_user_is_not_answered() -> None:
    """The peer's user is checked, even if the directory would let it in, and named."""
    listening = Listening(partial(answer_all, {Kind.OTHER: _echo}))
    path = Path(listening.open())
    try:
        path.parent.chmod(0o755)
        path.chmod(0o666)

        def refused() -> str:
            try:
                return f"answered {ask(path, Kind.OTHER)}"
            except (OSError, WireError):
                return "refused"

        assert as_nobody(refused) == "refused"
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)
    finally:
        listening.close()
    (named,) = listening.refused
    assert "(process " in named and named.endswith(", user 65534)")


def test_a_long_tmpdir_gets_a_socket_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a socket may have some 100 bytes."""
    deep = tmp_path / ("x" * PATH_BYTES_CAP)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    with serve({Kind.OTHER: _echo}) as path:
        assert len(os.fsencode(path)) <= PATH_BYTES_CAP
        assert ask(path, Kind.OTHER) == Frame(Kind.HIT)
    assert not list(deep.iterdir())


def test_no_place_for_a_socket_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which variable to set."""
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr("gpucache.serve.listening.PLACES", ())
    with pytest.raises(UsageError, match="set TMPDIR"), serve({}):
        pass
