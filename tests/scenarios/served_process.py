"""Calls NVRTC or Intel's OpenCL runtime like their programs, state by state; run as a child process.

Its arguments are ``nvrtc`` or ``intel``, a JSON file of states and the file for the outcomes. A state
has a directory ``root`` with ``files`` (a content that begins with ``->`` is the target of a link), the
program's current directory ``cwd`` below it, ``source`` and ``options``, and for NVRTC ``name``, ``headers``
and ``expressions``.
An outcome is everything that the program can see: codes, the log, the digest of each artifact, lowered names.
"""

import hashlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

State = dict[str, Any]
_KINDS = ("CUBIN", "PTX", "LTOIR")


def _nvrtc() -> Callable[[State], Any]:
    from cuda.bindings import nvrtc

    def bytes_of(what: str, program: Any) -> Any:
        status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
        if int(status) or size <= 1:
            return [int(status), size]
        data = bytes(size)
        (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, data)
        return [int(status), hashlib.sha256(data).hexdigest()]

    def ask(state: State) -> Any:
        headers = state["headers"]
        name = None if state["name"] is None else state["name"].encode()
        status, program = nvrtc.nvrtcCreateProgram(
            state["source"].encode(),
            name,
            len(headers),
            [content.encode() for content in headers.values()],
            [header.encode() for header in headers],
        )
        if int(status):
            return int(status)
        for expression in state["expressions"]:
            nvrtc.nvrtcAddNameExpression(program, expression.encode())
        options = [option.encode() for option in state["options"]]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytes(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        found = [int(status), log.decode(), *(bytes_of(kind, program) for kind in _KINDS)]
        for expression in state["expressions"]:
            code, lowered = nvrtc.nvrtcGetLoweredName(program, expression.encode())
            found.append([int(code), lowered.decode() if not int(code) else ""])
        nvrtc.nvrtcDestroyProgram(program)
        return found

    return ask


def _intel() -> Callable[[State], Any]:
    import numpy as np
    import pyopencl as cl

    platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel(R) OpenCL"))
    context = cl.Context(platform.get_devices()[:1])
    queue = cl.CommandQueue(context)

    def ask(state: State) -> Any:
        raw = cl._cl._Program(context, state["source"])
        try:
            raw._build(options=" ".join(state["options"]).encode(), devices=context.devices)
        except cl.Error as error:
            return str(error).partition("\n")[0]
        out = np.full(1, -1, np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
        kernel = cl.Kernel(cl.Program(raw), "show")
        kernel.set_arg(0, buffer)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        cl.enqueue_copy(queue, out, buffer)
        return int(out[0])

    return ask


def _put(root: Path, files: dict[str, str]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for name in ("a/sub", "b", "cwd/sub", "v1/include", "v2/include"):
        (root / name).mkdir(parents=True)
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("->"):
            place.symlink_to(content[2:])
        else:
            place.write_text(content, encoding="ascii")


def main() -> None:
    compiler, states, outcomes = sys.argv[1:]
    warnings.simplefilter("ignore")
    ask = _nvrtc() if compiler == "nvrtc" else _intel()
    found = []
    for state in json.loads(Path(states).read_text(encoding="utf-8")):
        os.chdir("/")
        _put(Path(state["root"]), state["files"])
        os.chdir(Path(state["root"], state["cwd"]))
        found.append(ask(state))
    Path(outcomes).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
