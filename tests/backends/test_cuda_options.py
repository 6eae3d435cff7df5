"""The parts of a request that reach NVRTC: options, include directories, environment."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import pytest

from gpucache.backends.cuda.options import FILE_NAME, plan, seed
from gpucache.backends.interface import Compilation
from gpucache.errors import OptionError
from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target, Toolchain

_REQUEST = BuildRequest(
    Program("p.cu", Language.CUDA_CPP, b""),
    Target("cuda", "sm_90"),
    artifact_kind=ArtifactKind.CUBIN,
    cwd="/src",
)
_TOOLCHAIN = Toolchain("nvrtc", (("NVRTC version", "13.5"),), ())


def _plan(*options: str, environ: Mapping[str, str] | None = None, **changes: object) -> Compilation:
    request = _REQUEST._replace(options=options, **changes)  # type: ignore[arg-type]
    return plan(request, _TOOLCHAIN, environ or {})


@pytest.mark.parametrize(
    "spellings",
    [
        [
            ("-DX=1",),
            ("-D", "X=1"),
            ("-D X=1",),
            ("-D=X=1",),
            ("--define-macro=X=1",),
            ("--define-macro", "X=1"),
            ("-DX",),
            ("-D", "X"),
            ("--define-macro=X",),
        ],
        [("-ftz=true",), ("--ftz=true",), ("-ftz", "true"), ("--ftz", "true")],
        [("-prec-div=false",), ("--prec-div=false",), ("--prec-div", "false")],
        [("-prec-sqrt=false",), ("--prec-sqrt=false",), ("--prec-sqrt", "false")],
        [("-fmad=false",), ("--fmad=false",), ("--fmad", "false")],
        [("-rdc=true",), ("--relocatable-device-code=true",), ("-dc",), ("--device-c",), ("-rdc", "true")],
        [("-rdc=false",), ("-dw",), ("--device-w",)],
        [("-use_fast_math",), ("--use_fast_math",)],
        [("-G",), ("--device-debug",)],
        [("-lineinfo",), ("--generate-line-info",)],
        [("-w",), ("--disable-warnings",)],
        [("-default-device",), ("--device-as-default-execution-space",)],
        [("-UX",), ("-U", "X"), ("-U=X",), ("--undefine-macro=X",), ("--undefine-macro", "X")],
        [("-std=c++17",), ("--std=c++17",), ("  -std=c++17 ",)],
        [("-maxrregcount=32",), ("--maxrregcount=32",), ("-maxrregcount", "32"), ("--maxrregcount", "32")],
        [("-include=a.h",), ("-include", "a.h"), ("--pre-include=a.h",), ("--pre-include", "a.h")],
        [("-Xptxas=-v",), ("-Xptxas", "-v"), ("--ptxas-options=-v",), ("--ptxas-options", "-v")],
        [("-dopt=on",), ("-dopt", "on"), ("--dopt=on",), ("--dopt", "on")],
    ],
)
def test_spellings_of_one_option_are_the_same(spellings: list[tuple[str, ...]]) -> None:
    """White space, split forms and long names do not distinguish options."""
    assert {_plan(*options).inputs.options for options in spellings} == {spellings[0]}


@pytest.mark.parametrize(
    "option",
    [
        *("-std c++17", "--define-macro X=1", "-include a.h", "-maxrregcount 32", "-Xptxas -v"),
        *("-std= c++17", "-ftz= true", "-rdc= true", "-maxrregcount= 32", "-include= a.h"),
    ],
)
def test_a_spelling_that_nvrtc_refuses_reaches_it(option: str) -> None:
    """An option that NVRTC does not accept is not changed into one that it does."""
    assert _plan(option).inputs.options == (option,)


@pytest.mark.parametrize("option", ["", "  ", "-D\nX=1", "-I\tinc", "-DX=1\0"])
def test_white_space_that_nvrtc_reads_differently_is_refused(option: str) -> None:
    """An empty option, and one with white space or a zero byte, share no key with an option NVRTC accepts."""
    with pytest.raises(OptionError):
        _plan("-w", option)


@pytest.mark.parametrize(
    "options",
    [("-DX=2", "-DY=1"), ("-DY=1", "-DX=1"), ("-DX=1",), ("-DX=1 -DY=1",), ("-DX=1", "-DY=1", "-UX")],
)
def test_other_options_are_others(options: tuple[str, ...]) -> None:
    """Values, order and number of options distinguish builds."""
    assert _plan(*options).inputs.options != _plan("-DX=1", "-DY=1").inputs.options


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("-DX",), ("-DX=",)),
        (("-DX",), ("-DX=01",)),
        (("-DF(x)",), ("-DF(x)=1",)),
        (("-DX", "-UX"), ("-UX", "-DX=1")),
        (("-ftz=true",), ("-ftz=false",)),
        (("-use_fast_math",), ("-ftz=true", "-prec-sqrt=false", "-prec-div=false", "-fmad=true")),
        (("-rdc=true",), ("-rdc=false",)),
        (("-std=c++17",), ("-std", "c++17")),
    ],
)
def test_what_gives_another_cubin_is_another_option(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    """Only spellings that the compiler treats alike are equal: other values, orders and errors are not."""
    assert _plan(*left).inputs.options != _plan(*right).inputs.options


def test_programs_that_may_be_linked_together_get_seeds_of_their_own() -> None:
    """Other options give another seed, the place of a header does not, and a seed that is given stays."""

    def seeded(*options: str) -> tuple[str, ...]:
        return seed(_REQUEST, _plan(*options).inputs.options)

    assert seeded("-DB", "-Iinc", "-std=c++17", "-DA") == ("-frandom-seed=gpucache-c5523ae9ef183e4f",)
    assert len({seeded(*options) for options in ((), ("-DA",), ("-DA", "-DB"))}) == 3
    assert seeded("-Iinc") == seeded("-Iother")
    assert seeded("--frandom-seed=7") == ()


_WRITTEN = ("-DX", "--ftz", "true", "-dc", "-std", "c++17", "--pre-include", "a.h")
_NOT_OURS = {"NVRTC_DISABLE_CONCURRENT_NVVM": "1", "NVRTC_CACHE_DIR": "/x", "CUDA_CACHE_PATH": "/x"}
_OURS = (("LIBNVVM_X", "3"), ("NVRTC_X", "1"), ("NVVM_X", "2"), ("PTXAS_X", ""))
_IN_ORDER = ("/src/b", "/src/a", "/src/b", "/src/c", "/src/a")
_PLANS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, object]]] = {
    "options reach NVRTC as written": (_WRITTEN, {}, {"command": ("-arch=sm_90", *_WRITTEN)}),
    "the command is complete and in order": (
        ("-DB", "-Iinc", "-std=c++17", "-DA"),
        {},
        {
            "command": ("-arch=sm_90", "-I/src/inc", "-DB", "-std=c++17", "-DA"),
            "inputs.options": ("-DB=1", "-std=c++17", "-DA=1"),
            "inputs.file_name": FILE_NAME,
            "inputs.toolchain": _TOOLCHAIN,
        },
    ),
    **{
        f"an include option leaves the options: {options}": (
            ("-DA", *options),
            {},
            {"inputs.options": ("-DA=1",), "include_dirs": ("/src/inc",)},
        )
        for options in (
            *(("-Iinc",), ("-I", "inc"), ("-I inc",), ("-I=inc",), ("--include-path=inc",)),
            ("--include-path", "inc"),
        )
    },
    "link/.. is for the system to follow": (("-Ilink/../inc",), {}, {"include_dirs": ("/src/link/../inc",)}),
    "options come before directories given apart": (
        ("-Ib", "-Ia", "-I/src/b"),
        {"include_dirs": ("c", "a")},
        {"include_dirs": _IN_ORDER, "command": ("-arch=sm_90", *(f"-I{one}" for one in _IN_ORDER))},
    ),
    "forced includes are options and headers": (
        ("-include=a.h", "--pre-include", "b.h"),
        {},
        {"inputs.options": ("-include=a.h", "-include=b.h"), "forced_includes": ("a.h", "b.h")},
    ),
    "LTO IR is asked for by an option": (
        ("-DA",),
        {"artifact_kind": ArtifactKind.LTOIR},
        {"inputs.options": ("-DA=1", "-dlto")},
    ),
    "variables that reach NVRTC are keyed, sorted": (
        (),
        {"environ": {**dict(reversed(_OURS)), **_NOT_OURS, "PYOPENCL_BUILD_OPTIONS": "-DX"}},
        {"inputs.environment": _OURS},
    ),
    **{
        f"debug information holds paths: {options}": (options, {}, {"holds_paths": holds})
        for options, holds in (
            *((("-G",), True), (("--device-debug",), True), (("-Xptxas", "-g"), True)),
            *((("-lineinfo",), False), (("-DG",), False), (("-Xptxas", "-v"), False)),
        )
    },
    **{
        f"line information lists files: {option}": ((option,), {}, {"lists_files": lists})
        for option, lists in (("-lineinfo", True), ("--generate-line-info", True), ("-w", False))
    },
    "nothing compiles late": ((), {"local_sizes": ((64,),)}, {"late": False, "inputs.local_sizes": ()}),
}


@pytest.mark.parametrize("name", _PLANS)
def test_what_is_planned(name: str) -> None:
    """The key and the compiler's arguments that options, directories and variables lead to."""
    options, more, expected = _PLANS[name]
    found = _plan(*options, **more)
    assert {path: attrgetter(path)(found) for path in expected} == expected


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("-arch=sm_80", "pass --target cuda:sm_80 instead"),
        ("-arch=compute_80", "pass --target cuda:compute_80 instead"),
        ("-dlto", "ask for the artifact kind ltoir"),
        ("--dlink-time-opt", "ask for the artifact kind ltoir"),
        ("-optix-ir", "which gpucache does not cache; leave it out"),
        ("--optix-ir", "which gpucache does not cache; leave it out"),
        ("-Xcudafe=-I/elsewhere", "use NVRTC's own option instead"),
        ("-Xptxas=--options-file=x", "use NVRTC's own option instead"),
        ("-Xptxas=-optf=x", "use NVRTC's own option instead"),
        ("-pch", "leave it out"),
        ("--create-pch=x", "leave it out"),
        ("--use-pch=x", "leave it out"),
        ("-pch-dir=x", "leave it out"),
        ("-time=x.csv", "leave it out"),
        ("-fdevice-time-trace=x", "leave it out"),
        ("--keep", "leave it out"),
        ("--keep-dir=x", "leave it out"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(option: str, remedy: str) -> None:
    """An option that changes the result, or reads and writes other files, is refused with the remedy."""
    with pytest.raises(OptionError) as caught:
        _plan("-DA", option)
    assert repr(option) in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        ("-arch", "sm_80"),
        ("--gpu-architecture", "sm_80"),
        ("-Xcudafe", "-I/elsewhere"),
        ("-Xptxas", "--options-file=x"),
    ],
)
def test_refused_options_are_seen_in_two_parts(options: tuple[str, ...]) -> None:
    """An option is refused too where its value is the next token, which is not taken for one of ours."""
    with pytest.raises(OptionError, match=options[1].removeprefix("-")):
        _plan(*options)


@pytest.mark.parametrize(
    "option", ["-D", "-U", "-I", "-include", "--pre-include", "-maxrregcount", "-Xptxas"]
)
def test_an_option_without_its_value_is_refused(option: str) -> None:
    """An option that ends the list in place of its value is refused."""
    with pytest.raises(OptionError, match=f"'{option}' lacks its value"):
        _plan("-DA", option)
