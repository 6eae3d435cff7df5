"""Unmodified programs that call NVRTC: ``core``, ``bindings`` or ``names``, then the mode.

Every printed line must be the same whether or not the compile is served.
"""

import hashlib
import os
import resource
import signal
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

SOURCE = "template <class T> __global__ void scale(T *out) { int unused; *out = T(7); }"


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def core(mode: str, *more: str) -> None:
    from cuda.core import Program, ProgramOptions

    options: dict[str, Any] = {"arch": "sm_90"}
    source = SOURCE
    if mode == "lines":
        options["lineinfo"] = True
    if mode == "wrong":
        source = "oops"
    if mode in ("header", "removed"):
        source, options["include_path"] = f'#include "value.h"\n{source}'.replace("T(7)", "VALUE"), [more[0]]
    try:
        code = Program(source, "c++", ProgramOptions(**options)).compile(
            "cubin", name_expressions=["scale<int>"]
        )
    except Exception as error:
        say(type(error).__name__, error)
        return
    if mode == "removed":
        Path(more[0], "value.h").unlink()
        if more[1]:
            Path(more[0]).rmdir()
    told = [] if mode == "lines" else [hashlib.sha256(code.code).hexdigest()]  # those lines name another file
    say(*told, len(code.code), code.symbol_mapping)


def bindings(mode: str) -> None:
    from cuda.bindings import nvrtc

    if mode == "gone":
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)

    def ask(function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
        return results[0] if results else None

    with tempfile.NamedTemporaryFile(suffix=".cu", prefix="of_a_program_") as file:
        if mode == "limited":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in most programs, but not in Python's own
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
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


_HASH = "__device__ constexpr unsigned h(const char *s) { return *s ? *s + 31u * h(s + 1) : 0u; }\n"
_KERNEL = 'extern "C" __global__ void k(const char **o) { %s; }'
_NUMBER = _KERNEL % "constexpr unsigned v = h(%s); *o = (const char *)v"
FORMS = {
    "text": _KERNEL % "*o = __FILE__",
    "size": _KERNEL % "*o = (const char *)sizeof(__FILE__)",
    "digest": _HASH + _NUMBER % "__FILE__",
    "letter": _KERNEL % "*o = (const char *)__FILE__[9]",
    "builtin": _HASH + _NUMBER % "__builtin_FILE()",
    "last part": _HASH + _NUMBER % "__builtin_FILE_NAME()",
    "base": _HASH + _NUMBER % "__BASE_FILE__",
    "wide": "#define S(x) L##x\n#define T(x) S(x)\n" + _KERNEL % "*o = (const char *)T(__FILE__)",
    "pasted": "#define C(a, b) a##b\n" + _KERNEL % "*o = C(__FI, LE__)",
    "pasted of short words": "#define C(a) __##a##LE__\n" + _KERNEL % "*o = C(FI)",
    "assert": _KERNEL % "assert(o)",
    "assert as text": "#define S(x) #x\n#define T(x) S(x)\n" + _HASH + _NUMBER % "T(assert(1))",
    "assert anew": "#define __assertfail(e, f, ...) (void)(*o = f)\n" + _KERNEL % "assert(!o)",
    "lambda": "template <class T> __device__ const char *g(T) { return __PRETTY_FUNCTION__; }\n"
    + _KERNEL % "*o = g([] {})",
    "warned": _KERNEL % "int unused; *o = 0",
    "message": "#pragma message(__FILE__)\n" + _KERNEL % "*o = 0",
    "static": "static __device__ int x;\n" + _KERNEL % "*o = (const char *)&x",
    "silent": _KERNEL % "*o = 0",
    "macro": '#include "tells.h"\n' + _HASH + _NUMBER % "NAME",
    "function": '#include "tells.h"\n' + _HASH + _NUMBER % "where()",
    "printing macro": '#include "says.h"\n#define S(x) #x\n#define T(x) S(x)\n' + _HASH + _NUMBER % "T(SAY)",
    "printed base": '#include "says.h"\n' + _KERNEL % "say(); *o = 0",
    "caller": '#include "tells.h"\n' + _HASH + _NUMBER % "caller()",
}


def names(folder: str, *names: str) -> None:
    """Sources that contain their own name, each under several names."""
    from cuda.bindings import nvrtc

    options = [b"-arch=sm_80", f"-I{folder}".encode(), b"-std=c++17"]
    for name in names:
        for form, source in FORMS.items():
            _, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
            said = [form, name, int(status)]
            for kind in ("ProgramLog", "CUBIN", "PTX"):
                data = bytes(getattr(nvrtc, f"nvrtcGet{kind}Size")(program)[1])
                getattr(nvrtc, f"nvrtcGet{kind}")(program, data)
                said.append(hashlib.sha256(data).hexdigest()[:12])
            say(*said)


_ARCHITECTURES = (
    "-arch=sm_80",
    "-arch=compute_90",
    "--gpu-architecture=sm_90",
    "--gpu-architecture compute_80",
)
_MORE = ("-dlto", "-optix-ir", "-rdc=true", "-G", "-gen-opt-lto", "-fdevice-syntax-only", "-dlto -optix-ir")
OPTIONS = [
    *map(" ".join, product(_ARCHITECTURES, repeat=2)),
    *map(" ".join, product(("", "-arch=sm_80", "-arch=sm_80 -arch=compute_90"), _MORE)),
    "",
    "-arch=compute_90",
    "-arch=compute_80 -arch=sm_90 -arch=compute_90",
]
"""Combinations of options that decide on the kinds of NVRTC's results."""


def kinds() -> None:
    """All results of a compile, by kind, with several options."""
    from cuda.bindings import nvrtc

    for options in OPTIONS:
        given = options.encode().split()
        _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"kinds.cu", 0, [], [])
        nvrtc.nvrtcAddNameExpression(program, b"scale<int>")
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        said = [options, int(status)]
        for kind in ("ProgramLog", "PTX", "CUBIN", "LTOIR", "OptiXIR", "TileIR"):
            if not hasattr(nvrtc, f"nvrtcGet{kind}"):
                continue
            size_code, size = getattr(nvrtc, f"nvrtcGet{kind}Size")(program)
            data = bytes(size or 0)
            (code,) = getattr(nvrtc, f"nvrtcGet{kind}")(program, data)
            said.append(f"{kind}:{int(size_code)}:{size}:{int(code)}:{hashlib.sha256(data).hexdigest()[:8]}")
        say(*said, *nvrtc.nvrtcGetLoweredName(program, b"scale<int>"))


def library() -> None:
    from gpucache.cuda import compile_program

    say(len(compile_program('extern "C" __global__ void show(int *out) { *out = 7; }', target="sm_90").code))


if __name__ == "__main__":
    if sys.argv[1] == "core":
        core(*sys.argv[2:])
    elif sys.argv[1] == "bindings":
        bindings(sys.argv[2])
    elif sys.argv[1] == "names":
        names(*sys.argv[2:])
    elif sys.argv[1] == "kinds":
        kinds()
    else:
        library()
