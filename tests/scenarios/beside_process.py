"""Builds programs plain and through the library, state by state; run as a child process.

Its arguments are ``pocl``, ``intel`` or ``nvrtc`` and a directory for header trees. Reads a JSON list of
states from stdin: ``files`` (below the directory, name to content; content null makes the name a link to
``far/deep``), ``source``, ``options``, ``environ`` and ``cwd``. Writes a JSON list: the plain value of V, its
value through the library (null if the program did not compile), whether that was a hit, and both again of a
second build, with whether C answered it from a row, and whether C answered the first.
"""

import json
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Build = Callable[[str, list[str]], int | None]
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}


def _opencl(name: str) -> tuple[Build, Build]:
    import numpy as np
    import pyopencl as cl

    from gpucache.answers.lookup import Hit
    from gpucache.backends.opencl import BACKEND, compiler, platforms
    from gpucache.backends.opencl.options import as_pyopencl_reads
    from gpucache.engine.lookup import get_or_build
    from gpucache.engine.prepare import prepare
    from gpucache.errors import CompileError
    from gpucache.library import outcomes, process
    from gpucache.model import BuildRequest, Language, Program
    from gpucache.opencl import build_program

    platform = next(each for each in cl.get_platforms() if each.name.startswith(_PLATFORMS[name]))
    context = cl.Context(platform.get_devices()[:1])
    queue = cl.CommandQueue(context)

    def value(build: Callable[[], Any]) -> int | None:
        try:
            program = build()
        except (cl.Error, CompileError):
            return None
        out = np.full(1, -1, np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
        kernel = cl.Kernel(program, "show")
        kernel.set_arg(0, buffer)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        cl.enqueue_copy(queue, out, buffer)
        return int(out[0])

    def ours(source: str, options: list[str]) -> Any:
        if name == "intel":
            return build_program(context, source, options=options)
        # The library leaves PoCL's builds to ``gpucache warm``, so it is built here in the same way.
        (device,) = context.devices
        request = BuildRequest(
            Program("show", Language.OPENCL_C, source.encode()),
            platforms.target_of(device),
            options=as_pyopencl_reads(options),
            cwd=str(Path.cwd()),
            searches_cwd=True,
        )
        prepared = prepare(BACKEND, request, platforms.toolchain(device), os.environ)
        compile_ = partial(compiler.compile_source, context, device, request, prepared.compilation)
        outcome = get_or_build(process.stores(), prepared, compile_)
        outcomes.tell(process.stores(), prepared, outcome)
        payload = outcome.payload if isinstance(outcome, Hit) else outcome.artifact.payload
        return compiler.load_binaries(context, [device], [payload])

    return (
        lambda source, options: value(lambda: cl.Program(context, source).build(options)),
        lambda source, options: value(lambda: ours(source, options)),
    )


def _nvrtc() -> tuple[Build, Build]:
    from gpucache.backends.cuda import nvrtc
    from gpucache.cuda import compile_program
    from gpucache.errors import CompileError
    from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target

    def value(build: Callable[[], bytes]) -> int | None:
        try:
            stored = re.search(rb"(?:mov|st)\.[\w.]+\s+[^;]*, (\d+);", build())
        except CompileError:
            return None
        return int(stored[1]) if stored else 0

    def plain(source: str, options: list[str]) -> bytes:
        request = BuildRequest(
            Program("show", Language.CUDA_CPP, source.encode()),
            Target.parse("cuda:compute_80"),
            artifact_kind=ArtifactKind.PTX,
        )
        return nvrtc.compile_exactly(request, ("-arch=compute_80", *options)).payload

    return (
        lambda source, options: value(lambda: plain(source, options)),
        lambda source, options: value(
            lambda: bytes(compile_program(source, target="compute_80", options=options).code)
        ),
    )


class _Hits(logging.Handler):
    """Whether the last build was one."""

    last = False

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage().startswith("hit ")


def _put(root: Path, files: dict[str, str | None]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for name in ("a/sub", "b", "cwd/include", "far/deep", "extra"):
        (root / name).mkdir(parents=True)
    for name, content in files.items():
        if content is None:
            (root / name).symlink_to(root / "far/deep")
        else:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(content, encoding="ascii")


def _noting_rows() -> Callable[[], bool]:
    """Whether C has answered a build since this was asked last."""
    from gpucache.library import rows

    answered, asked = [False], rows.answer

    def answer(kind: int, question: Any) -> Any:
        row = asked(kind, question)
        answered[0] = row is not None
        return row

    def since() -> bool:
        was, answered[0] = answered[0], False
        return was

    rows.answer = answer
    return since


def main() -> None:
    from gpucache.library.missing import flush

    warnings.simplefilter("ignore")
    by_row = _noting_rows()
    plain, ours = _nvrtc() if sys.argv[1] == "nvrtc" else _opencl(sys.argv[1])
    hits = _Hits()
    logger = logging.getLogger("gpucache")
    logger.addHandler(hits)
    logger.setLevel(logging.DEBUG)
    answers = []
    for state in json.load(sys.stdin):
        os.chdir("/")
        _put(Path(sys.argv[2]), state["files"])
        os.chdir(state["cwd"])
        os.environ.update(state["environ"])
        expected, hits.last = plain(state["source"], state["options"]), False
        first = ours(state["source"], state["options"]), hits.last, by_row()
        flush()  # after which its row is there
        answers.append((expected, *first, ours(state["source"], state["options"]), by_row()))
        for name in state["environ"]:
            del os.environ[name]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
