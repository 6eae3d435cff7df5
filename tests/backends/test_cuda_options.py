"""What of a request reaches NVRTC: options, include directories, environment."""

from collections.abc import Mapping

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
    """White space, split forms and long names do not tell options apart."""
    assert {_plan(*options).inputs.options for options in spellings} == {spellings[0]}


@pytest.mark.parametrize(
    "option",
    [
        *("-std c++17", "--define-macro X=1", "-include a.h", "-maxrregcount 32", "-Xptxas -v"),
        *("-std= c++17", "-ftz= true", "-rdc= true", "-maxrregcount= 32", "-include= a.h"),
    ],
)
def test_a_spelling_that_nvrtc_refuses_reaches_it(option: str) -> None:
    """One word that NVRTC does not take is not made into what it takes."""
    assert _plan(option).inputs.options == (option,)


@pytest.mark.parametrize("option", ["", "  ", "-D\nX=1", "-I\tinc", "-DX=1\0"])
def test_white_space_that_nvrtc_reads_differently_is_refused(option: str) -> None:
    """An empty option, and white space or a zero byte in one, share no key with what NVRTC accepts."""
    with pytest.raises(OptionError):
        _plan("-w", option)


@pytest.mark.parametrize(
    "options",
    [("-DX=2", "-DY=1"), ("-DY=1", "-DX=1"), ("-DX=1",), ("-DX=1 -DY=1",), ("-DX=1", "-DY=1", "-UX")],
)
def test_other_options_are_others(options: tuple[str, ...]) -> None:
    """Values, order and number of options tell builds apart."""
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
    """Only what the compiler takes for the same is: other values, orders, and what it refuses are not."""
    assert _plan(*left).inputs.options != _plan(*right).inputs.options


def test_the_compiler_is_given_options_as_they_were_written() -> None:
    """One spelling is for the key; a spelling that the compiler refuses reaches it and is refused."""
    written = ("-DX", "--ftz", "true", "-dc", "-std", "c++17", "--pre-include", "a.h")
    assert _plan(*written).command[1:] == written


def test_the_command_is_complete_and_in_order() -> None:
    """The compiler gets its architecture, the directories, and the options behind them."""
    found = _plan("-DB", "-Iinc", "-std=c++17", "-DA")
    assert found.inputs.options == ("-DB=1", "-std=c++17", "-DA=1")
    assert found.command == (
        "-arch=sm_90",
        "-I/src/inc",
        "-DB",
        "-std=c++17",
        "-DA",
    )
    assert found.inputs.file_name == FILE_NAME
    assert found.inputs.toolchain == _TOOLCHAIN


def test_programs_that_may_be_linked_together_get_seeds_of_their_own() -> None:
    """Other options give another seed, the place of a header does not, and a seed that is given stays."""

    def seeded(*options: str) -> tuple[str, ...]:
        return seed(_REQUEST, _plan(*options).inputs.options)

    assert seeded("-DB", "-Iinc", "-std=c++17", "-DA") == ("-frandom-seed=gpucache-c5523ae9ef183e4f",)
    assert len({seeded(*options) for options in ((), ("-DA",), ("-DA", "-DB"))}) == 3
    assert seeded("-Iinc") == seeded("-Iother")
    assert seeded("--frandom-seed=7") == ()


@pytest.mark.parametrize(
    "options",
    [
        ("-Iinc",),
        ("-I", "inc"),
        ("-I inc",),
        ("-I=inc",),
        ("--include-path=inc",),
        ("--include-path", "inc"),
    ],
)
def test_include_options_become_directories(options: tuple[str, ...]) -> None:
    """An include option leaves the options and becomes an absolute directory."""
    found = _plan("-DA", *options)
    assert found.inputs.options == ("-DA=1",)
    assert found.include_dirs == ("/src/inc",)


def test_an_include_directory_reaches_the_compiler_as_given() -> None:
    """What ``link/..`` leads to is the operating system's to say, so the text is left alone."""
    assert _plan("-Ilink/../inc").include_dirs == ("/src/link/../inc",)


def test_include_directories_are_searched_in_order() -> None:
    """Options come before directories given apart; one that is given again reaches NVRTC again."""
    found = _plan("-Ib", "-Ia", "-I/src/b", include_dirs=("c", "a"))
    assert found.include_dirs == ("/src/b", "/src/a", "/src/b", "/src/c", "/src/a")
    assert [word for word in found.command if word[:2] == "-I"] == [f"-I{one}" for one in found.include_dirs]


def test_forced_includes_are_options_and_headers() -> None:
    """A header forced in front is keyed as an option and handed on, so that its content is keyed too."""
    found = _plan("-include=a.h", "--pre-include", "b.h")
    assert found.inputs.options == ("-include=a.h", "-include=b.h")
    assert found.forced_includes == ("a.h", "b.h")


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
    """An option that changes what comes out, or reads and writes beside it, is refused with the remedy."""
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
    """An option that ends the list where its value should stand is refused."""
    with pytest.raises(OptionError, match=f"'{option}' lacks its value"):
        _plan("-DA", option)


def test_the_artifact_kind_gives_its_option() -> None:
    """LTO IR is asked for by the artifact kind, and the option is keyed."""
    assert _plan("-DA", artifact_kind=ArtifactKind.LTOIR).inputs.options == ("-DA=1", "-dlto")


def test_variables_that_reach_nvrtc_are_keyed() -> None:
    """Set variables that reach NVRTC enter the key, sorted; a driver's and a cache's do not."""
    environ = {
        "NVVM_X": "2",
        "NVRTC_X": "1",
        "PTXAS_X": "",
        "LIBNVVM_X": "3",
        "NVRTC_DISABLE_CONCURRENT_NVVM": "1",
        "NVRTC_CACHE_DIR": "/x",
        "CUDA_CACHE_PATH": "/x",
        "PYOPENCL_BUILD_OPTIONS": "-DX",
    }
    assert _plan(environ=environ).inputs.environment == (
        ("LIBNVVM_X", "3"),
        ("NVRTC_X", "1"),
        ("NVVM_X", "2"),
        ("PTXAS_X", ""),
    )


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        (("-G",), True),
        (("--device-debug",), True),
        (("-Xptxas", "-g"), True),
        (("-lineinfo",), False),
        (("-DG",), False),
        (("-Xptxas", "-v"), False),
    ],
)
def test_debug_options_put_paths_into_the_artifact(options: tuple[str, ...], holds: bool) -> None:
    """A build with debug information can only be reused from the same place."""
    assert _plan(*options).holds_paths is holds


@pytest.mark.parametrize(
    ("option", "lists"), [("-lineinfo", True), ("--generate-line-info", True), ("-w", False)]
)
def test_line_options_list_the_files_of_an_artifact(option: str, lists: bool) -> None:
    """Line information names the files that code came from, and nothing else of a place."""
    assert _plan(option).lists_files is lists


def test_nothing_compiles_late() -> None:
    """NVRTC is done when it returns, so local sizes have no part in its key."""
    found = _plan(local_sizes=((64,),))
    assert (found.late, found.inputs.local_sizes) == (False, ())
