"""Children that run one function and end with it."""

import os
from collections.abc import Callable


def forked(function: Callable[..., object], *arguments: object) -> int:
    """A child that runs a function; an exception is exit status 1."""
    child = os.fork()
    if child:
        return child
    try:
        function(*arguments)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)
