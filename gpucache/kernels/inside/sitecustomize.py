"""Watches for the import of Triton in a program that is recorded, and imports nothing itself.

Python imports a module of this name when it starts. The environment's own one, if there is any, comes next.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,arg-type,import-not-found"

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - every Python of a command waits


class _Watch:
    """Finds Triton as the others do, and adds the recorder when it has been imported."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002
        if name != "triton":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path)
            if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
                self._follow(spec.loader)
            if spec is not None:
                return spec
        return None

    @staticmethod
    def _follow(loader):
        load = loader.exec_module

        def loaded(module):
            load(module)
            try:
                sys.path.append(_HERE)
                import gpucache_triton

                gpucache_triton.install(module)
            except Exception as error:
                sys.stderr.write(f"gpucache: kernels of Triton are not recorded here: {error}\n")
            finally:
                sys.path.remove(_HERE)

        loader.exec_module = loaded


if os.environ.get("GPUCACHE_RECORD_KERNELS"):
    sys.meta_path.insert(0, _Watch())

sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]  # noqa: PTH100
_own = sys.modules.pop(__name__, None)
try:
    import sitecustomize  # noqa: F401 - the environment's own
except ImportError as error:
    if error.name != "sitecustomize":
        raise
finally:
    if _own is not None:
        sys.modules.setdefault(__name__, _own)
