"""Where a command asks: a socket in a directory of this run, at which Python only waits for a first question.

Owns the directory, which only this user may enter, the socket, and the thread that waits. What answers is
imported and made when the first question comes, as most commands that hit ask none. So this module imports
next to nothing: every command under ``gpucache run`` waits for it. Must not know what a request means.
"""

# Paths are text, and what follows is imported where it is needed: see above.
# ruff: noqa: PTH118

import _socket  # socket's own classes take a process longer to make than all that is done here
import _thread
import os

from gpucache.host.scratch import PLACES, scratch
from gpucache.intercept.environment import drain_s

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpucache.intercept.server import Handlers

PATH_BYTES_CAP = 100
"""The most bytes of the socket's path: sockets take 107, and names of commands' own may be shorter."""
_NOTES = "notes"
"""The file beside the socket into which a command's libraries write what needs no answer."""
_NAME = "s"
_WAITING = 128


class Listening:
    """The socket of a run, from its opening to its end."""

    def __init__(self, answering: "Callable[[], Handlers]", roots: str = "") -> None:
        """``answering`` gives what answers each kind of request; it is called at the first request.

        ``roots`` are those whose index is looked into before, separated by a colon.
        """
        self._answering = answering
        self.roots = roots
        self._folder: scratch | None = None
        self._path = ""
        self._listener: _socket.socket | None = None
        self.ended = False
        """Whether nobody new is to be heard."""
        self._heard = _thread.allocate_lock()
        self.error: Exception | None = None
        """Why nothing could answer; None as long as nothing asks."""
        self.loaded = False
        """Whether a library of ours said that it is loaded."""
        self.refused: dict[str, None] = {}
        """The processes that asked as another user, and were not answered."""
        self.binaries = 0
        """How many programs were made from binaries, which nobody compiles."""
        self.hits: list[bytes] = []
        """What the index answered: when it was asked, how long that took, and the note of its row."""

    def open(self) -> str:
        """Listen; gives the path of the socket. Raises OSError, UsageError."""
        path = self._place()
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(_WAITING)
        self._heard.acquire()
        try:
            _thread.start_new_thread(self._wait, (self._listener,))
        except RuntimeError:  # no thread is left
            self._heard.release()
            raise
        return path

    def close(self) -> None:
        """Hear nobody new, finish what was begun within ``drain_s``, and tidy up."""
        self.ended = True
        if self._listener is not None:
            try:  # contextlib takes as long to import as all of this
                self._listener.shutdown(_socket.SHUT_RDWR)  # which wakes the thread that waits
            except OSError:
                self.ended = True  # nothing could answer, so that it was closed
            self._heard.acquire(timeout=2 * drain_s())
            self._listener.close()
        if self._folder is not None:
            self._read_notes()
            self._folder.remove()

    def _read_notes(self) -> None:
        try:
            with open(self._notes(self._path), "rb") as file:  # noqa: PTH123
                lines = file.read().splitlines()
        except OSError:
            return
        self.loaded = self.loaded or b"loaded" in lines
        self.binaries = lines.count(b"binary")
        self.hits = [line[4:] for line in lines if line.startswith(b"hit ")]

    @staticmethod
    def _notes(path: str) -> str:
        return os.path.join(os.path.dirname(path), _NOTES)  # noqa: PTH120

    def _place(self) -> str:
        """Where the socket of this run goes."""
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
                return  # the command has ended, and nothing was asked
            from gpucache.intercept.server import answer_all

            answer_all(listener.fileno(), self._answering(), self, first)
        except Exception as error:
            self.error = error
            listener.close()  # whoever waits for an answer goes on without one
        finally:
            self._heard.release()
