"""Records the kernels that Triton compiles, or finds compiled, in this process: a line of JSON for each.

Triton's listener sees every compile and every hit of its cache. Its hook ``jit_cache_hook`` would not do: to
set it makes programs fail whose constants JSON cannot say. Parsed options belong to one architecture, so the
caller's own are taken from the frame of ``JITFunction.run``; where there is none, those that differ from the
defaults. An error here is a line, and never the program's. Read in Triton 3.4 to 3.9.
"""

import enum
import hashlib
import json
import linecache
import math
import os
import re
import sys
import threading
import time
from typing import Any

VERSION = 1
LINE_CAP = 1 << 20
_NEAR = (1 << 31) - 1
"""Bytes of storage that a pointer reaches with 32 bits: AMD's kernels differ by that."""
_FROM_TARGET = frozenset(
    {
        "arch",
        "supported_fp8_dtypes",
        "deprecated_fp8_dot_operand_dtypes",
        "max_num_imprecise_acc_default",
        "extern_libs",
        "allowed_dot_input_precisions",
        "warp_size",
        "backend_name",
    }
)
"""Options that the target decides, not the caller."""
_PLACES = ("TRITON_CACHE_", "TRITON_HOME", "TRITON_DUMP_", "TRITON_OVERRIDE_", "TRITON_PRINT_")


class Unrecordable(Exception):  # noqa: N818 - no error of the program
    """A kernel that another process cannot find or compile again; says why."""


def encode(value: Any) -> Any:  # noqa: C901 - a case for each type
    """A constant as JSON: plain values as they are, others as an object of one field, its kind."""
    import triton
    from triton.language import core

    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return {"float": value.hex() if math.isfinite(value) else repr(value)}
    if isinstance(value, core.constexpr):
        return {"constexpr": encode(value.value)}
    if kind is core.dtype:
        return {"dtype": value.name}
    if isinstance(value, triton.runtime.jit.JITFunction) or kind.__name__ == "ConstexprFunction":
        return {"function": [value.fn.__module__, value.fn.__qualname__, value.cache_key]}
    named = [kind.__module__, kind.__qualname__]
    if isinstance(value, enum.Enum):
        return {"enum": [*named, value.name]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        if "<locals>" in kind.__qualname__:
            raise Unrecordable(f"a constant is a {kind.__qualname__}, which a function makes")
        return {"named": [*named, [encode(one) for one in value]]}
    if kind in (tuple, list):
        return {kind.__name__: [encode(one) for one in value]}
    if named == ["torch", "dtype"]:
        return {"torch": str(value).rpartition(".")[2]}
    raise Unrecordable(f"a constant is a {'.'.join(named)}")


def ir_digest(module: Any) -> str:
    """The digest of a kernel's first IR without places in files.

    It has every value that the kernel read, also what Triton's key lacks: attributes of modules, globals.
    """
    lines = (line for line in str(module).splitlines() if not line.startswith("#loc"))
    bare = [re.sub(r" loc\([^()]*(\([^()]*\)[^()]*)*\)", "", line) for line in lines]
    return hashlib.sha256("\n".join(bare).encode()).hexdigest()


def is_found(module: str) -> bool:
    """Whether an import finds a module; it finds none that the program wrote, as Inductor and Helion do."""
    parent = module.rpartition(".")[0]
    places = getattr(sys.modules.get(parent), "__path__", None)
    found = (places is not None or not parent) and any(
        finder.find_spec(module, places) for finder in sys.meta_path if hasattr(finder, "find_spec")
    )
    return module == "__main__" or found


def text_of(module: str, file: str) -> str:
    """The text of a module that its program wrote; raises Unrecordable if sources are not wanted."""
    if is_found(module):
        return ""
    if os.environ.get("GPUCACHE_RECORD_NO_SOURCES"):
        raise Unrecordable("its program wrote its module, and with --digests-only no source is recorded")
    return "".join(linecache.getlines(file))


def changed_options(backend: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    """The options of a compile that differ from their defaults and do not follow from the target."""
    usual = vars(backend.parse_options({}))
    return {
        name: metadata[name]
        for name in usual.keys() - _FROM_TARGET
        if name in metadata and _plain(metadata[name]) != _plain(usual[name])
    }


def variables() -> dict[str, str]:
    """The variables that decide how Triton compiles, without the ones that name directories."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    named = {name: value for name, value in os.environ.items() if name.startswith("TRITON_")}
    reaching = {**get_cache_invalidating_env_vars(), **named}
    return {name: value for name, value in sorted(reaching.items()) if not name.startswith(_PLACES)}


class Recorder:
    """A listener of Triton."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._name = (0, "")
        self._lock = threading.Lock()

    def __call__(self, **told: Any) -> None:
        """Record one compile in a line; raises nothing."""
        try:
            try:
                line = self._kernel(**told)
            except Exception as error:
                line = {
                    "name": str(getattr(told.get("src"), "name", "?")),
                    "unrecorded": str(error) or repr(error),
                }
            self._write(line)
        except Exception:  # a full disk, say
            return

    def _kernel(
        self, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool, **_: Any
    ) -> dict[str, Any]:
        import triton

        function = getattr(src, "fn", None)
        if function is None:
            raise Unrecordable("it was compiled from a file of IR")
        if getattr(triton.knobs.runtime, "add_stages_inspection_hook", None) is not None:
            raise Unrecordable("the program adds its own stages to the compiler")
        target = metadata["target"]
        if isinstance(target, dict):
            target = triton.backends.compiler.GPUTarget(**target)
        options, near, own = self._asked(function)
        if not own:
            options = changed_options(triton.compiler.compiler.make_backend(target), metadata)
        source = [path for name, path in metadata_group.items() if name.endswith(".source")]
        if not source:
            raise Unrecordable("Triton kept no first IR of it, as with TRITON_STORE_BINARY_ONLY")
        module, code = function.fn.__module__, function.fn.__code__
        text = text_of(module, code.co_filename)
        with open(source[0], encoding="utf-8") as file:  # noqa: PTH123 - as short as it can be
            first = ir_digest(file.read())
        return {
            "name": src.name,
            "triton": triton.__version__,
            "python": sys.executable,
            "path": [os.path.abspath(place) for place in sys.path],  # noqa: PTH100
            "environment": variables(),
            "module": module,
            "qualname": function.fn.__qualname__,
            "file": os.path.abspath(code.co_filename) if text or module == "__main__" else "",  # noqa: PTH100
            "text": text,
            "language": src.language.name,
            "signature": [[name, encode(kind)] for name, kind in src.signature.items()],
            "constants": [[list(path), encode(value)] for path, value in src.constants.items()],
            "attributes": [[list(path), value] for path, value in src.attrs.items()],
            "near": near,
            "options": {name: encode(value) for name, value in sorted(options.items())},
            "target": [target.backend, target.arch, target.warp_size],
            "first_ir": first,
            "function": function.cache_key,
            "source": src.hash(),
            "key": metadata["hash"],
            "compile_ns": 0 if cache_hit else int(times.total * 1000),
        }

    @staticmethod
    def _asked(function: Any) -> tuple[dict[str, Any], list[Any], bool]:
        """The caller's options, the pointers that reach little memory, and whether there was a caller."""
        from triton.runtime.jit import JITFunction

        frame: Any = sys._getframe(2)
        while frame is not None and (
            frame.f_code is not JITFunction.run.__code__ or frame.f_locals.get("self") is not function
        ):
            frame = frame.f_back
        if frame is None:
            return {}, [], False
        inputs = {one.name for one in function.params}
        near: list[Any] = []
        for number, value in enumerate(frame.f_locals["bound_args"].values()):
            _near(value, [number], near)
        return {n: v for n, v in frame.f_locals["kwargs"].items() if n not in inputs}, near, True

    def _write(self, line: dict[str, Any]) -> None:
        # Not by key alone: what is one kernel here may be two for another target.
        same = json.dumps({**line, "compile_ns": 0}, sort_keys=True)
        data = (json.dumps({"gpucache kernel": VERSION, **line}) + "\n").encode("ascii")
        with self._lock:
            if same in self._seen or len(data) > LINE_CAP:
                return
            if self._name[0] != os.getpid():  # also in a child that was forked
                self._name = os.getpid(), f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}.kernels"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            place = os.open(os.path.join(self._folder, self._name[1]), flags, 0o600)  # noqa: PTH118
            try:
                os.write(place, data)
            finally:
                os.close(place)
            self._seen.add(same)


def _near(value: Any, path: list[int], found: list[Any]) -> None:
    if isinstance(value, (tuple, list)):
        for number, one in enumerate(value):
            _near(one, [*path, number], found)
    elif hasattr(value, "ptr_range"):
        found += [path] if value.ptr_range() <= _NEAR else []
    elif hasattr(value, "untyped_storage"):
        found += [path] if value.untyped_storage().size() <= _NEAR else []


def _plain(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)


class _Both:
    """Triton's attribute for one listener: calls ours as well as one that the program sets."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def __get__(self, knobs: Any, owner: Any = None) -> Any:
        theirs = None if knobs is None else vars(knobs).get("listener")
        if theirs is None:
            return self._ours

        def both(**told: Any) -> Any:
            self._ours(**told)
            return theirs(**told)

        return both

    def __set__(self, knobs: Any, theirs: Any) -> None:
        vars(knobs)["listener"] = theirs


def install(triton: Any) -> None:
    """Record from now on; raises Unrecordable if this Triton has no listener."""
    knobs: Any = getattr(getattr(triton, "knobs", None), "compilation", None)
    if not hasattr(type(knobs), "listener"):
        raise Unrecordable(f"Triton {triton.__version__} reports no compiles; it needs 3.4 or newer")
    type(knobs).listener = _Both(Recorder(os.environ["GPUCACHE_RECORD_KERNELS"]))
