"""Hatchling's hook: compiles the libraries before a wheel or an editable install is made.

Without a compiler the package is made without them, and ``locate`` gives the remedy.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _load(path: Path) -> ModuleType:
    """A module by its file, as the package is not installed yet."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class NativeLibraries(BuildHookInterface):  # type: ignore[misc]
    """Adds the libraries to a wheel, which is then for this platform alone."""

    def _native(self) -> ModuleType:
        return _load(Path(self.root, "gpucache", "native", "build.py"))

    def dependencies(self) -> list[str]:
        wanted: list[str] = self._native().requirements()
        return wanted

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        native = self._native()
        compiler = native.find_compiler()
        problems = native.build(compiler, native.BUILT) if compiler else {}
        for name, problem in problems.items():
            self.app.display_warning(f"{native.file_name(name)} is left out: {problem}")
        if compiler is None or len(problems) == len(native.LIBRARIES):
            return
        build_data["artifacts"] += [
            f"gpucache/native/lib/{native.file_name(name)}"
            for name in native.LIBRARIES
            if name not in problems
        ]
        if native.STARTER not in problems and version != "editable":  # a checkout's would soon be older
            build_data["shared_scripts"][str(native.BUILT / native.STARTER)] = "gpucache"
            # The installer would write its own gpucache over it; ours starts this one.
            scripts = self.metadata.core.scripts
            scripts["gpucache-python"] = scripts.pop("gpucache")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{compiler.platform}"
