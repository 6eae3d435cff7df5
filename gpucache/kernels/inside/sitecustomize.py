"""Watches for the import of Triton and of Inductor in a program that is recorded, and imports nothing itself.

Python imports a module of this name when it starts. The environment's own one, if there is any, comes next.
That is so in Python 2, too, which a command may start: it has to be able to read this.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,arg-type,import-not-found"
# mypy: disable-error-code="misc,assignment,truthy-function,redundant-expr"

import os
import sys

try:
    from _thread import _local
except ImportError:  # Python 2
    _local = None

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - every Python of a command waits


def _record(triton):
    try:
        sys.path.append(_HERE)
        import gpucache_triton

        gpucache_triton.install(triton)
    finally:
        sys.path.remove(_HERE)


def _reach(pool):
    """Have Inductor's workers find this file: they start with the path of modules as it is here."""
    start = pool.SubprocPool.__init__

    def reaching(self, *words, **named):
        sys.path.insert(0, _HERE)
        try:
            start(self, *words, **named)
        finally:
            sys.path.remove(_HERE)

    pool.SubprocPool.__init__ = reaching


class _Watch:
    """Finds some modules as the others do, and acts when one has been imported.

    A program may look for one without importing it, and in several threads.
    """

    def __init__(self):
        self._within = _local()
        self.wanted = {"triton": _record, "torch._inductor.compile_worker.subproc_pool": _reach}

    def find_spec(self, name, path=None, target=None):
        if name not in self.wanted or hasattr(self._within, "asks"):
            return None
        self._within.asks = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find and find(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        self._follow(spec.loader)
                    return spec
        finally:
            del self._within.asks
        return None

    def _follow(self, loader):
        load = loader.exec_module

        def loaded(module):
            load(module)
            act = self.wanted.pop(module.__name__, None)  # a loader may be shared, or found twice
            try:
                if act:
                    act(module)
            except Exception as error:
                sys.stderr.write("gpucache: kernels of Triton are not recorded here: " + str(error) + "\n")

        loader.exec_module = loaded


if _local and os.environ.get("GPUCACHE_RECORD_KERNELS"):
    sys.meta_path.insert(0, _Watch())

sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]  # noqa: PTH100
_own = sys.modules.pop(__name__, None)
try:
    import sitecustomize  # noqa: F401 - the environment's own
except ImportError as error:
    if getattr(error, "name", None) != "sitecustomize":
        raise
finally:
    if _own is not None:
        sys.modules.setdefault(__name__, _own)
