"""Where a command asks: a socket in a directory of this run, at which Python only waits for a first question.

Owns the directory, which only this user may enter, the socket, and the thread that waits. The server is
imported and made when the first question comes, as most commands that hit ask none. So this module imports
next to nothing: every command under ``gpucache run`` waits for it. Must not know the meaning of a request.
"""

# Paths are text, and all else is imported where it is needed: see above.
# ruff: noqa: PTH118

import _socket  # importing socket's own classes takes longer than all the work of this module
import _thread
import os
import stat

from gpucache.host.scratch import PLACES, scratch
from gpucache.serve.environment import drain_s

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Callable

PATH_BYTES_CAP = 100
"""The most bytes of the socket's path: sockets take 107, and names of commands' own may be shorter."""
_NOTES = "notes"
"""The file next to the socket into which a command's libraries write messages that need no reply."""
_NOTES_CAP = 65 << 20
"""The most bytes that are read of it: its writers stop at 64 MiB."""
_NAME = "s"
_WAITING = 128


class Listening:
    """The socket of a run, from its opening to its end."""

    def __init__(self, answer: "Callable[[int, Listening, int], None]", roots: str = "") -> None:
        """``answer`` serves the socket from its first connection to its end, as ``server.answer_all`` does.

        ``roots`` are the roots whose index is searched first, separated by a colon.
        """
        self._answer = answer
        self.roots = roots
        self._folder: scratch | None = None
        self._path = ""
        self._listener: _socket.socket | None = None
        self.ended = False
        """Whether no new connection is accepted."""
        self._heard = _thread.allocate_lock()
        self.error: Exception | None = None
        """Why the server could not answer; None as long as there is no request."""
        self.loaded = False
        """Whether a library of ours said that it is loaded."""
        self.refused: dict[str, None] = {}
        """The processes that asked as another user, and were refused."""
        self.binaries = 0
        """How many programs were made from binaries, which need no compile."""
        self.within = self.missed = 0
        """Hits of gpucache's library inside the programs."""
        self.told: list[bytes] = []
        """Notes of processes that cannot write the file."""
        self.filtered = 0
        """How many builds could not ask, as their processes have seccomp filters of their own."""
        self.launched: list[bytes] = []
        """Launches that no entry of the index's answers is compiled for: its question and the local size."""
        self.hits: list[bytes] = []
        """The index's answers: ``hit``, or ``late`` where the compiler goes on at launches, the time of the
        question, its duration, and the note of its row."""

    def open(self) -> str:
        """Listen; gives the path of the socket. Raises OSError, UsageError."""
        path = self._place()
        listener = self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(_WAITING)
        self._begin(listener)
        return path

    def adopt(self, listener: int, lock: int, folder: str) -> None:
        """Go on with a socket at which this process listened before it was Python."""
        self._folder, self._path = scratch.adopt(folder, lock), os.path.join(folder, _NAME)
        os.set_inheritable(listener, False)
        self._listener = _socket.socket(fileno=listener)
        self._begin(self._listener)

    def _begin(self, listener: "_socket.socket") -> None:
        self._heard.acquire()
        try:
            _thread.start_new_thread(self._wait, (listener,))
        except RuntimeError:  # no thread is left
            self._heard.release()
            raise

    def close(self) -> None:
        """Accept no new connection, finish the current ones within ``drain_s``, and clean up."""
        self.ended = True
        if self._listener is not None:
            try:  # contextlib takes as long to import as all of this
                self._listener.shutdown(_socket.SHUT_RDWR)  # which wakes the thread that waits
            except OSError:
                self.ended = True  # the server could not start, so that it was closed
            self._heard.acquire(timeout=2 * drain_s())
            self._listener.close()
        if self._folder is not None:
            self._read_notes()
            self._folder.remove()

    def _read_notes(self) -> None:
        lines: list[bytes] = []
        try:  # the command may have put anything in its place
            fd = os.open(self._notes(self._path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:  # noqa: PTH123
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    lines = file.read(_NOTES_CAP).splitlines()
        except OSError:
            lines = []
        lines += [line.rstrip(b"\n") for line in self.told]
        self.loaded = self.loaded or b"loaded" in lines
        self.binaries = lines.count(b"binary")
        self.filtered = lines.count(b"filtered")
        self.within, self.missed = (
            sum(int(line[7:16]) for line in lines if line.startswith(word) and line[7:].isdigit())
            for word in (b"within ", b"missed ")
        )
        self.launched = [line[9:] for line in lines if line.startswith(b"launched ")]
        self.hits = [line for line in lines if line.startswith((b"hit ", b"late "))]

    @staticmethod
    def _notes(path: str) -> str:
        return os.path.join(os.path.dirname(path), _NOTES)  # noqa: PTH120

    def _place(self) -> str:
        for parent in filter(None, (os.environ.get("TMPDIR", ""), *PLACES)):
            folder = scratch("run", os.path.abspath(parent))  # noqa: PTH100
            try:
                path = os.path.join(folder.make(), _NAME)
                os.close(os.open(self._notes(path), os.O_WRONLY | os.O_CREAT, 0o600))
            except OSError:
                continue
            if len(os.fsencode(path)) <= PATH_BYTES_CAP:
                self._folder, self._path = folder, path
                return path
            folder.remove()
        from gpucache.errors import UsageError

        raise UsageError(
            "cannot make a directory for a socket in TMPDIR, /tmp or /dev/shm; set TMPDIR to one that "
            "can be written and has a short path"
        )

    def _wait(self, listener: "_socket.socket") -> None:
        try:
            try:
                first, _ = listener._accept()  # type: ignore[attr-defined]
            except OSError:
                return  # the command has ended, and there was no question
            self._answer(listener.fileno(), self, first)
        except Exception as error:
            self.error = error
            listener.close()  # a process that waits for a reply goes on without one
        finally:
            self._heard.release()
