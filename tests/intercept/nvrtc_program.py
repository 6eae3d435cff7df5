"""Programs that call NVRTC as their authors wrote them: ``core`` or ``bindings``, then the mode.

Every line that is printed must be the same whether the compile is served or not.
"""

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = "template <class T> __global__ void scale(T *out) { int unused; *out = T(7); }"


def say(*words: object) -> None:
    """A line of what it finds."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def core(mode: str, *more: str) -> None:
    """Through cuda.core."""
    from cuda.core import Program, ProgramOptions

    options: dict[str, Any] = {"arch": "sm_90"}
    source = SOURCE
    if mode == "lines":
        options["lineinfo"] = True
    if mode == "wrong":
        source = "oops"
    if mode == "header":
        source, options["include_path"] = f'#include "value.h"\n{source}'.replace("T(7)", "VALUE"), [more[0]]
    try:
        code = Program(source, "c++", ProgramOptions(**options)).compile(
            "cubin", name_expressions=["scale<int>"]
        )
    except Exception as error:
        say(type(error).__name__, error)
        return
    told = [] if mode == "lines" else [hashlib.sha256(code.code).hexdigest()]  # those lines name another file
    say(*told, len(code.code), code.symbol_mapping)


def bindings(mode: str) -> None:
    """Through cuda.bindings, with a temporary file of its own."""
    from cuda.bindings import nvrtc

    def ask(function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
        return results[0] if results else None

    with tempfile.NamedTemporaryFile(suffix=".cu", prefix="of_a_program_") as file:
        name = file.name if mode == "lines" else "warned.cu"
        options = [b"-arch=sm_90", *([b"-lineinfo"] if mode == "lines" else [])]
        program = ask(nvrtc.nvrtcCreateProgram, SOURCE.encode(), name.encode(), 0, [], [])
        ask(nvrtc.nvrtcAddNameExpression, program, b"scale<int>")
        ask(nvrtc.nvrtcCompileProgram, program, len(options), options)
        log = bytes(ask(nvrtc.nvrtcGetProgramLogSize, program))
        ask(nvrtc.nvrtcGetProgramLog, program, log)
        for kind in ("CUBIN", "PTX"):
            data = bytes(ask(getattr(nvrtc, f"nvrtcGet{kind}Size"), program))
            ask(getattr(nvrtc, f"nvrtcGet{kind}"), program, data)
            say(kind, len(data), Path(name).name.encode() in data, b"gpucache" in data)
        say(log.decode().replace(name, "NAME"), ask(nvrtc.nvrtcGetLoweredName, program, b"scale<int>"))


def library() -> None:
    """Through gpucache itself."""
    from gpucache.cuda import compile_program

    say(len(compile_program('extern "C" __global__ void show(int *out) { *out = 7; }', target="sm_90").code))


if __name__ == "__main__":
    if sys.argv[1] == "core":
        core(*sys.argv[2:])
    elif sys.argv[1] == "bindings":
        bindings(sys.argv[2])
    else:
        library()
