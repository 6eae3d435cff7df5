"""Compiles recorded kernels with the Triton of this Python, into Triton's own cache, without a GPU.

Reads one JSON object: ``target`` (backend, architecture, threads of a warp), ``check`` and ``kernels``, which
are lines of a recording. Writes a line of JSON before a kernel, so that a crash has a name, and one after it.
The modules of the kernels are imported here, and nowhere else.

A kernel is refused unless this process reads what the program read: its function has the recorded key, its
constants the recorded hash, and for the recorded target its first IR and Triton's whole key are the recorded
ones. Read in Triton 3.4 to 3.9.
"""

import gc
import importlib
import importlib.util
import json
import linecache
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

_CACHE = "TRITON_CACHE_DIR"
_MAIN = "__mp_main__"
"""The name of a program's main module here, as for children of multiprocessing: it does not run."""


class Refused(Exception):  # noqa: N818 - an answer
    """A kernel that is not compiled here; says why."""


class Skipped(Refused):
    """A kernel that no other process can find."""


class _Stop(BaseException):
    """Ends a compile after its first IR, which is all that is wanted."""


class Stated:
    """A driver of Triton that only states a target: modules ask it when they are imported."""

    def __init__(self, target: Any) -> None:
        self.target = target

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:  # noqa: ARG002
        major, minor = divmod(self.target.arch, 10) if isinstance(self.target.arch, int) else (0, 0)
        return major, minor

    @property
    def utils(self) -> Any:
        """Facts about the device: mostly those of the largest GPU of the architecture."""
        return self

    def get_device_properties(self, device: int = 0) -> dict[str, Any]:  # noqa: ARG002
        shared = {80: 166912, 86: 101376, 89: 101376, 120: 101376}.get(self.target.arch, 232448)
        shared = shared if self.target.backend == "cuda" else 65536
        return {
            "max_shared_mem": shared,
            "multiprocessor_count": 132,
            "max_num_regs": 65536,
            "warpSize": self.target.warp_size,
        }


class Worker:
    """Compiles for one target."""

    def __init__(self, target: list[Any], *, check: bool) -> None:
        import triton
        from triton.runtime.driver import driver

        self._triton = triton
        self._compiler = triton.compiler.compiler
        self._target = triton.backends.compiler.GPUTarget(*target)
        self._check = check
        self._mains: dict[str, Any] = {}
        self._broken = ""
        """Why a program's main module was loaded only in part."""
        self._texts: dict[str, tuple[str, str | None]] = {}
        """The modules that programs wrote, each with the cache that its program used."""
        self._cache = os.environ.get(_CACHE)
        stated = Stated(self._target)
        for name in ("_default", "_active"):
            if hasattr(driver, name):
                setattr(driver, name, stated)
        driver.set_active(stated)

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """The result of one kernel; raises Refused, and any error of its modules and of its compile."""
        if row["triton"] != self._triton.__version__:
            raise Refused(
                f"it was recorded with Triton {row['triton']}, and this Python has {self._triton.__version__}"
            )
        self._load(row)
        function = self._find(row["module"], row["qualname"], row["function"], row["file"])
        recorded = self._triton.backends.compiler.GPUTarget(*row["target"])
        options = {name: self._decode(value, row) for name, value in row["options"].items()}
        signature = {name: self._decode(kind, row) for name, kind in row["signature"]}
        constants = {tuple(path): self._decode(value, row) for path, value in row["constants"]}
        attributes = {tuple(path): value for path, value in row["attributes"]}
        source = self._source(row)

        def asked() -> Any:
            return source(function, dict(signature), dict(constants), dict(attributes))

        if asked().hash() != row["source"]:
            raise Refused("its constants do not read back as they were; record it again")
        self._require_same(asked(), recorded, options, row)
        if self._target.backend != recorded.backend:
            attributes = self._restated(attributes, row["near"])
        known = vars(self._compiler.make_backend(self._target).parse_options({}))
        unknown = sorted(options.keys() - known.keys())
        if unknown:
            raise Refused(f"{self._target.backend} has no option {', '.join(unknown)}")
        return self._compile(asked(), options)

    def _compile(self, source: Any, options: dict[str, Any]) -> dict[str, Any]:
        heard: list[dict[str, Any]] = []
        knobs, began = self._triton.knobs.compilation, time.monotonic_ns()
        knobs.listener = lambda **told: heard.append(told)
        if self._check:
            source.stop = lambda _: _Stop()
        parsed = vars(self._compiler.make_backend(self._target).parse_options(options))
        key: list[str] = []

        def kept(usual: Any, name: str) -> Any:
            key.append(name)
            return usual(name)

        with self._manager(kept):
            try:
                self._compiler.compile(source, target=self._target, options=parsed)
            except _Stop:
                return {"result": "missing", "key": key[0]}
        files = [path for path in heard[0]["metadata_group"].values() if os.path.exists(path)]  # noqa: PTH110
        size = sum(os.stat(path).st_blocks * 512 for path in files)  # noqa: PTH116
        took = time.monotonic_ns() - began
        return {
            "result": "hit" if heard[0]["cache_hit"] else "built",
            "key": key[0],
            "compile_ns": took,
            "size_bytes": size,
        }

    def _require_same(self, source: Any, target: Any, options: dict[str, Any], row: dict[str, Any]) -> None:
        """Raise Refused unless the program would compile the same for the target that it was recorded for."""
        from gpucache_triton import ir_digest  # type: ignore[import-not-found] # it is beside this file

        found: list[str] = []

        def stop(module: Any) -> BaseException:
            found.append(ir_digest(module))
            return _Stop()

        class Nothing:
            def __init__(self, key: str) -> None:
                found.append(key)

            def get_group(self, name: str) -> None:
                """Return nothing, as this cache is empty."""

        source.stop = stop
        parsed = vars(self._compiler.make_backend(target).parse_options(options))
        stated = self._triton.runtime.driver.active
        stated.target = target
        with self._manager(lambda _, key: Nothing(key)):
            try:
                self._compiler.compile(source, target=target, options=parsed)
            except _Stop:
                pass
            finally:
                stated.target = self._target
        if found[1] != row["first_ir"]:
            raise Refused(
                "it reads a value that differs here, of a module or a variable, which its key does not have"
            )
        if found[0] != row["key"]:
            raise Refused(
                "its key differs here: another build of Triton or ptxas, or another variable of Triton"
            )

    @contextmanager
    def _manager(self, make: Any) -> Iterator[None]:
        """A manager of Triton's caches, which ``make`` makes of the usual one and a key."""
        usual = self._compiler.get_cache_manager
        self._compiler.get_cache_manager = lambda key: make(usual, key)
        try:
            yield
        finally:
            self._compiler.get_cache_manager = usual

    def _restated(self, attributes: dict[Any, Any], near: list[list[int]]) -> dict[Any, Any]:
        """The attributes of arguments in the words of the target's backend."""
        backend, reached = self._compiler.make_backend(self._target), {tuple(path) for path in near}
        hip = self._target.backend == "hip"
        return {
            path: backend.parse_attr(
                ("D" if any(one[0] == "tt.divisibility" for one in was) else "")
                + ("S" if hip and path in reached else "")
            )
            for path, was in attributes.items()
        }

    @staticmethod
    def _source(row: dict[str, Any]) -> Any:
        """The class of a kernel's source, whose first IR can be asked for."""
        if row["language"] == "GLUON":
            from triton.experimental.gluon._runtime import GluonASTSource as Source
        else:
            from triton.compiler import ASTSource as Source

        class Asked(Source):  # type: ignore[misc]
            stop: Any = None

            def make_ir(self, *args: Any, **named: Any) -> Any:
                """Make the first IR. A mere check stops before it, a comparison of digests after it."""
                module = super().make_ir(*args, **named)
                if self.stop is not None:
                    raise self.stop(module)
                return module

        return Asked

    def _load(self, row: dict[str, Any]) -> None:
        """Load a module that its program wrote, and use the cache that the program uses for it.

        Unless the variable is set, Inductor names its own when its module is loaded, and Helion another.
        """
        name, text, cache = row["module"], row["text"], self._cache
        if text and self._texts.get(name, ("",))[0] != text:
            _state_inductor()
            lines = text.splitlines(keepends=True)
            linecache.cache[row["file"]] = len(text), None, lines, row["file"]
            module = sys.modules[name] = ModuleType(name)
            module.__file__ = row["file"]
            _set_cache(cache)
            exec(compile(text, row["file"], "exec"), vars(module))
            if cache is None and "from helion" in text:
                with suppress(ImportError):
                    helion: Any = importlib.import_module("helion.autotuner.local_cache")
                    _set_cache(helion.helion_triton_cache_dir(0))
            self._texts[name] = text, os.environ.get(_CACHE)
        _set_cache(self._texts[name][1] if text else cache)

    def _module(self, name: str, file: str) -> Any:
        if name != "__main__":
            try:
                return importlib.import_module(name)
            except Exception:  # as of packages that ask PyTorch for the GPU
                if not _state_torch(self._target):
                    raise
                return importlib.import_module(name)
        if file not in self._mains:
            sys.path.insert(0, os.path.dirname(file))  # noqa: PTH120
            spec = importlib.util.spec_from_file_location(_MAIN, file)
            if spec is None or spec.loader is None:
                raise Refused(f"its program {file} cannot be imported")
            module = self._mains[file] = sys.modules[_MAIN] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except Exception as error:  # it launches kernels, say; those before that line are there
                told = 'it should launch kernels below if __name__ == "__main__" only'
                self._broken = f"its program {file} fails where it is imported ({error}); {told}"
        return self._mains[file]

    def _find(self, module: str, qualname: str, key: str, file: str) -> Any:
        """A function by its name, also one behind a decorator or made by another; raises Refused."""
        home = self._module(module, file)
        named: list[Any] = []
        try:
            one = _walk(home, qualname)
            while not hasattr(one, "cache_key") and hasattr(one, "fn"):
                one = one.fn
            named = [one] if hasattr(one, "cache_key") else []
        except AttributeError:
            pass
        kinds = ("JITFunction", "GluonJITFunction", "ConstexprFunction")
        found = list(named)
        if not any(self._key(one, module) == key for one in found):
            found += [
                one
                for one in gc.get_objects()
                if type(one).__name__ in kinds
                and (one.fn.__module__, one.fn.__qualname__) == (home.__name__, qualname)
            ]
        same = [one for one in found if self._key(one, module) == key]
        if same:
            return same[0]
        if named:
            raise Refused("its source, or a global variable in its key, is not the recorded one")
        if module == "__main__" and self._broken:
            raise Refused(self._broken)
        raise Skipped(f"{module} has no such {qualname} after its import: the program makes it while it runs")

    @staticmethod
    def _key(function: Any, module: str) -> str:
        if module == "__main__" and getattr(function, "module", "") == _MAIN:
            function.module = "__main__"
            function._fn_name = function._fn_name.replace(_MAIN, "__main__")
        return str(function.cache_key)

    def _decode(self, value: Any, row: dict[str, Any]) -> Any:
        if not isinstance(value, dict):
            return value
        from triton.language import core

        ((kind, told),) = value.items()
        file = row["file"]
        if kind == "float":
            return float.fromhex(told) if "0x" in told else float(told)
        if kind == "constexpr":
            return core.constexpr(self._decode(told, row))
        if kind == "dtype":
            return core.dtype(told)
        if kind == "function":
            return self._find(told[0], told[1], told[2], file)
        if kind == "enum":
            return _walk(self._module(told[0], file), told[1])[told[2]]
        if kind == "named":
            made = _walk(self._module(told[0], file), told[1])
            return made(*[self._decode(one, row) for one in told[2]])
        if kind == "torch":
            return getattr(importlib.import_module("torch"), told)
        return {"tuple": tuple, "list": list}[kind](self._decode(one, row) for one in told)


def _state_torch(target: Any) -> bool:
    """Make PyTorch report a GPU of the target to modules that ask for one; returns whether it reported none.

    What they choose by a wrong fact shows in the first IR.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or target.backend != "cuda" or hasattr(torch.cuda, "_stated"):
        return False
    names = {80: "NVIDIA A100-SXM4-80GB", 90: "NVIDIA H100 80GB HBM3", 100: "NVIDIA B200"}
    major, minor = divmod(target.arch, 10)
    facts = SimpleNamespace(
        name=names.get(target.arch, "NVIDIA"),
        major=major,
        minor=minor,
        multi_processor_count=132,
        total_memory=80 << 30,
        warp_size=target.warp_size,
        shared_memory_per_block_optin=232448,
    )
    stated = {"name": facts.name, "capability": (major, minor), "properties": facts}
    for name, value in stated.items():
        setattr(torch.cuda, f"get_device_{name}", lambda *_, value=value: value)
    torch.cuda.device_count, torch.cuda.current_device = lambda: 1, lambda: 0
    torch.cuda._stated = True
    return True


def _state_inductor() -> None:
    """Have Inductor's modules accept the stated driver, where they look for a GPU."""
    with suppress(ImportError):
        helpers: Any = importlib.import_module("torch._inductor.runtime.triton_helpers")
        helpers.set_driver_to_gpu = lambda: None


def _set_cache(place: str | None) -> None:
    if place is None:
        os.environ.pop(_CACHE, None)
    else:
        os.environ[_CACHE] = place


def _walk(value: Any, names: str) -> Any:
    for name in names.split("."):
        value = getattr(value, name)
    return value


def _set_variables(recorded: dict[str, str]) -> None:
    """Set the recorded program's variables, and unset all others that change Triton's keys."""
    from gpucache_triton import variables

    os.environ.update(recorded)
    for name in variables().keys() - recorded.keys():
        os.environ.pop(name)


def main() -> None:
    """Answer the request on standard input; what modules print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    rows = request["kernels"]
    os.environ.pop("GPUCACHE_RECORD_KERNELS", None)
    os.environ.update(rows[0]["environment"])
    sys.path += [one for one in rows[0]["path"] if one not in sys.path and os.path.exists(one)]  # noqa: PTH110
    _set_variables(rows[0]["environment"])
    worker = Worker(request["target"], check=request["check"])
    for number, row in enumerate(rows):
        answers.write(json.dumps({"begun": number}) + "\n")
        answers.flush()
        try:
            told = worker.answer(row)
        except Refused as error:
            told = {"result": "skipped" if isinstance(error, Skipped) else "refused", "why": str(error)}
        except Exception as error:
            lines = str(error).strip().splitlines()
            told = {"result": "failed", "why": f"{type(error).__name__}: {lines[-1] if lines else ''}"[:1000]}
        answers.write(json.dumps({"done": number, **told}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
