"""Whether workers' opened files can be traced on this machine."""

import pytest

from gpucache.engine.workers.pool import Bounds, Done, run_isolated

_ASK = (
    "__import__('gpucache.engine.workers.opened_files', fromlist=['']).OPENED_FILES.watch(int)[1] is not None"
)


def require_net() -> None:
    """Skip if no process can be traced: the kernel is too old, or the container refuses a filter."""
    ((_, answer),) = run_isolated(eval, [_ASK], Bounds(watched=True))
    if answer != Done(True):
        pytest.skip("a seccomp filter with a listener is refused here, so no opens are seen")
