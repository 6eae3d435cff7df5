"""An action with a deadline for its result. Must not know the action."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(limit_s: float, action: Callable[[], T]) -> T:
    """The result of an action, or its error; TimeoutError if it takes longer, and then it goes on.

    It runs in a thread that the end of the process does not wait for. Raises RuntimeError if no thread can be
    started.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="gpucache-limited", daemon=True).start()
    if not ended.wait(limit_s):
        raise TimeoutError
    for error in errors:
        raise error
    return results[0]
