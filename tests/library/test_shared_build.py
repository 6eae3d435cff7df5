"""Builds that threads share: once, again after a failure, never forever, and not across a fork."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from gpucache.library.shared_build import SharedBuild
from tests.patience import PATIENCE_S


class _Builder:
    """Waits for permission to go on, and then returns or raises the next result."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.building = threading.Event()
        self.leave = threading.Event()

    def __call__(self) -> object:
        self.asked += 1
        self.building.set()
        assert self.leave.wait(PATIENCE_S)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _ask(shared: SharedBuild[object], build: Callable[[], object], threads: int) -> list[object]:
    """The results of a number of threads: the value, or the error."""
    with ThreadPoolExecutor(threads) as pool:
        asking: list[Future[object]] = [pool.submit(shared.get, build) for _ in range(threads)]
        if isinstance(build, _Builder):
            assert build.building.wait(PATIENCE_S)
            build.leave.set()
        return [one.exception(PATIENCE_S) or one.result() for one in asking]


def test_all_threads_get_one_build() -> None:
    """However many threads request it during and after the build, it is built once."""
    shared, build = SharedBuild[object](), _Builder("built")
    assert _ask(shared, build, 8) == ["built"] * 8
    assert shared.get(build) == "built"
    assert build.asked == 1


def test_a_failed_build_is_tried_once_more() -> None:
    """One thread gets the error; all others get the result of the second build."""
    first = RuntimeError("first")
    shared, build = SharedBuild[object](), _Builder(first, "built")
    answers = _ask(shared, build, 8)
    assert sorted(map(str, answers)) == ["built"] * 7 + ["first"]
    assert build.asked == 2


def test_a_build_that_fails_twice_is_left_alone() -> None:
    """One thread gets the first error, all others the second, and no third build is made."""
    shared, build = SharedBuild[object](), _Builder(RuntimeError("first"), RuntimeError("second"), "built")
    answers = _ask(shared, build, 8)
    assert sorted(map(str, answers)) == ["first"] + ["second"] * 7
    with pytest.raises(RuntimeError, match="second"):
        shared.get(build)
    assert build.asked == 2


def test_an_interrupt_is_no_failure() -> None:
    """After an interrupted build the next request builds."""
    shared = SharedBuild[object]()
    build = _Builder(RuntimeError(), KeyboardInterrupt(), KeyboardInterrupt(), "built")
    build.leave.set()
    for error in (RuntimeError, KeyboardInterrupt, KeyboardInterrupt):
        with pytest.raises(error):
            shared.get(build)
    assert shared.get(build) == "built"


def test_a_build_that_asks_for_itself_is_told() -> None:
    """Waiting for oneself would never end, so it is an error."""
    shared = SharedBuild[object]()
    with pytest.raises(RuntimeError, match="asks for its own result"):
        shared.get(lambda: shared.get(lambda: 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_its_parents_thread() -> None:
    """A child that is forked while a thread builds, and others wait, builds for itself."""
    shared, build = SharedBuild[object](), _Builder("of the parent")
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(shared.get, build) for _ in range(2)]
        assert build.building.wait(PATIENCE_S)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, str(shared.get(lambda: "of the child")).encode())
            os._exit(0)
        os.close(write)
        with open(read, "rb") as said:  # noqa: PTH123 - a descriptor
            assert said.read() == b"of the child"
        os.waitpid(child, 0)
        build.leave.set()
        assert [one.result(PATIENCE_S) for one in asking] == ["of the parent"] * 2
