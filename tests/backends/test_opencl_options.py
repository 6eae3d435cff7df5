"""What of a request reaches an OpenCL compiler: options, include directories, environment."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl.options import as_pyopencl_reads, command_line, plan, pyopencl_include_dirs
from gpucache.errors import OptionError
from gpucache.model import BuildRequest, Language, Program, Target, Toolchain
from gpucache.native.build import file_name
from gpucache.sources import Place

_PROGRAM = Program("p.cl", Language.OPENCL_C, b"")
_OWN = pyopencl_include_dirs()


def _plan(
    *options: str,
    implementation: str = "pocl",
    environ: Mapping[str, str] | None = None,
    include_dirs: tuple[str, ...] = (),
    local_sizes: tuple[tuple[int, ...], ...] = (),
) -> Compilation:
    request = BuildRequest(
        _PROGRAM,
        Target("opencl", "p/d"),
        options=options,
        include_dirs=include_dirs,
        local_sizes=local_sizes,
        cwd="/src",
    )
    return plan(request, Toolchain(implementation, (), ()), environ or {})


@pytest.mark.parametrize(
    "spellings",
    [
        [("-DX",), ("-D", "X"), ("-D X",), ("  -DX  ",), ("-D", " X ")],
        [("-DX=1 + 2",), ("-D", "X=1 + 2"), ("-D X=1 + 2",)],
        [("-cl-mad-enable",), (" -cl-mad-enable", "", "  ")],
    ],
)
def test_spellings_of_one_option_are_the_same(spellings: list[tuple[str, ...]]) -> None:
    """White space and split forms do not tell options apart."""
    assert {_plan(*options).inputs.options for options in spellings} == {_plan(*spellings[0]).inputs.options}


@pytest.mark.parametrize(
    "options",
    [("-DX=2", "-DY=1"), ("-DY=1", "-DX=1"), ("-DX=1",), ("-DX=1 -DY=1",), ("-DX=1", "-DY=1", "-w")],
)
def test_other_options_are_others(options: tuple[str, ...]) -> None:
    """Values, order and number of options tell builds apart."""
    assert _plan(*options).inputs.options != _plan("-DX=1", "-DY=1").inputs.options


def test_options_keep_their_order() -> None:
    """Options reach key and compiler in the order given, since a later one may undo an earlier."""
    options = ("-w", "-DB", "-cl-std=CL2.0", "-DA", "-DB=2")
    found = _plan(*options)
    assert found.inputs.options == ("-w", "-DB=1", "-cl-std=CL2.0", "-DA=1", "-DB=2")
    assert found.command[: len(options)] == options


@pytest.mark.parametrize(("implementation", "one"), [("pocl", True), ("intel", True), ("other", False)])
def test_a_name_alone_is_defined_as_1_where_that_is_known(implementation: str, one: bool) -> None:
    """``-DX`` and ``-DX=1`` are one option of clang; of a driver that nobody tried they are two."""
    found = [_plan(option, implementation=implementation).inputs.options for option in ("-DX", "-DX=1")]
    assert (found[0] == found[1]) is one
    others = ("-DX=", "-DX=01", "-DX=2", "-UX")
    assert all(_plan(option, implementation=implementation).inputs.options not in found for option in others)


@pytest.mark.parametrize("options", [("-Iinc",), ("-I", "inc"), ("-I inc",), ('-I "inc"',)])
def test_include_options_become_directories(options: tuple[str, ...]) -> None:
    """An include option leaves the options and becomes an absolute directory."""
    found = _plan("-w", *options)
    assert found.inputs.options == ("-w",)
    assert found.include_dirs == ("/src/inc", *_OWN)
    assert found.command == ("-w", "-I/src/inc", *(f"-I{own}" for own in _OWN))


def test_include_directories_are_searched_in_order() -> None:
    """Options come before directories given apart, each once at its first place, PyOpenCL's own last."""
    found = _plan("-Ib", "-Ia", "-I/src/b", include_dirs=("c", "a"))
    assert found.include_dirs == ("/src/b", "/src/a", "/src/c", *_OWN)
    assert found.inputs.locations == found.include_dirs


def test_pyopencls_own_headers_are_there() -> None:
    """The folder of headers that PyOpenCL adds to every build is found without importing it."""
    (own,) = _OWN
    assert Path(own, "pyopencl-random123").is_dir()


def test_options_of_pyopencls_variable_come_behind() -> None:
    """PYOPENCL_BUILD_OPTIONS adds options and directories at the end, as PyOpenCL does, and no variable."""
    found = _plan("-DA", "-Ia", environ={"PYOPENCL_BUILD_OPTIONS": "-DB -I b"})
    assert found.inputs.options == ("-DA=1", "-DB=1")
    assert found.include_dirs == ("/src/a", *_OWN, "/src/b")
    assert found.inputs.environment == ()
    assert found.inputs.options == _plan("-DA", "-Ia", "-DB").inputs.options


@pytest.mark.parametrize(
    "option",
    [
        "-save-temps",
        "-save-temps=x",
        "--dump-opt-llvm=x",
        "-dump-x",
        "-s",
        "-ftime-trace",
        "-MD",
        "-o",
        "-include",
        "-include-pch",
        "-imacros",
        "-isystem",
        "-isystem/usr/include",
        "-iquote",
        "-idirafter",
        "-Xclang",
    ],
)
def test_options_beside_the_key_are_refused(option: str) -> None:
    """An option that reads or writes files which no key covers is refused by name, with the remedy."""
    with pytest.raises(OptionError, match=f"'{option}' reads or writes files .* leave it out"):
        _plan("-w", option, "x")


@pytest.mark.parametrize("option", ["-D", "-I"])
def test_an_option_without_its_value_is_refused(option: str) -> None:
    """An option that ends the list where its value should stand is refused with its form."""
    with pytest.raises(OptionError, match=f"'{option}' lacks its value; write {option}VALUE"):
        _plan("-w", option)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["/Iinc"], "'/Iinc' is ambiguous to compilers; write -I"),
        (["/I", "inc"], "'/I' is ambiguous to compilers; write -I"),
        (["-x", "-w"], "'-x' lacks its value"),
        ("-w -x", "'-x' lacks its value"),
        (["\t-DA"], "contains white space or a zero byte"),
        (["-DA=1\n-DB"], "contains white space or a zero byte"),
        (["-DA=1\N{NO-BREAK SPACE}"], "contains white space or a zero byte"),
        (["-DA=1\0-DB"], "contains white space or a zero byte"),
        (['-DA="1', "-w"], "open a quote; close it"),
        (['"-Iinc"'], "'\"-Iinc\"' is ambiguous to compilers; quote only its value"),
        (['-"I"inc'], "quote only its value"),
        (['"-DA=1"'], "quote only its value"),
        (['"-D"', "A"], "quote only its value"),
        (['"-cl-kernel-arg-info"'], "quote only its value"),
    ],
)
def test_what_compilers_read_differently_is_refused(options: str | list[str], words: str) -> None:
    """Nothing that some compiler refuses, or reads as less, shares a key with what all of them accept."""
    with pytest.raises(OptionError, match=re.escape(words)):
        _plan(*as_pyopencl_reads(options))


def test_pyopencls_variable_is_split_at_white_space() -> None:
    """Single quotes in PYOPENCL_BUILD_OPTIONS hold nothing together; double ones are the driver's."""
    found = _plan(environ={"PYOPENCL_BUILD_OPTIONS": "-DX='1 -DY='2' -DZ=\"3 + 4\""})
    assert found.inputs.options == ("-DX='1", "-DY='2'", "-DZ=3 + 4")


@pytest.mark.parametrize(
    ("implementation", "variable"),
    [
        ("pocl", "POCL_EXTRA_BUILD_FLAGS"),
        ("intel", "OPENCL_PROGRAM_COMPILE_OPTIONS"),
        ("other", "AMD_OCL_BUILD_OPTIONS_APPEND"),
    ],
)
def test_directories_in_a_variable_of_the_compiler_are_searched_last(
    implementation: str, variable: str
) -> None:
    """They enter the search and not the command, since the compiler adds them itself."""
    found = _plan("-Ia", implementation=implementation, environ={variable: "-Ib -DX -I /c"})
    assert found.inherited_dirs == ("/src/b", "/c")
    assert found.command == ("-I/src/a", *(f"-I{own}" for own in _OWN))
    assert found.inputs.environment == ((variable, "-Ib -DX -I /c"),)


def test_an_include_directory_reaches_the_compiler_as_given() -> None:
    """What ``link/..`` leads to is the operating system's to say, so the text is left alone."""
    assert _plan("-Ilink/../inc").include_dirs == ("/src/link/../inc", *_OWN)


_IN = {
    "pocl": ("POCL_VECTORIZER_REMARKS", "POCL_WORK_GROUP_METHOD", "POCL_EXTRA_BUILD_FLAGS"),
    "intel": (
        *("CL_CONFIG_CPU_TARGET_ARCH", "CL_CONFIG_CPU_VECTORIZER_MODE", "OPENCL_PROGRAM_COMPILE_OPTIONS"),
        *("NO_OVERRIDE_CLANG_VERSION", "LLVM_OVERRIDE_PRODUCER", "OPENCL_LAYERS"),
    ),
    "nvidia": ("CUDA_FORCE_PTX_JIT",),
    "other": ("IGC_ShaderDumpEnable", "AMD_OCL_BUILD_OPTIONS", "POCL_WORK_GROUP_METHOD", "RUSTICL_DEBUG"),
}
_OUT = {
    "pocl": ("POCL_CACHE_DIR", "POCL_DEBUG", "POCL_MAX_PTHREAD_COUNT", "POCL_BINARY_SPECIALIZE_WG"),
    "intel": (
        "CL_CONFIG_LOG_FILE",
        "HWLOC_SYNTHETIC",
        "CL_CONFIG_CPU_TBB_NUM_WORKERS",
        "POCL_WORK_GROUP_METHOD",
    ),
    "nvidia": ("CUDA_CACHE_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NV_CUDA_LIB_VERSION"),
    "other": ("NEO_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "MESA_DEBUG", "HOME"),
}


@pytest.mark.parametrize("implementation", _IN)
def test_variables_that_reach_the_compiler_are_keyed(implementation: str) -> None:
    """Set variables that reach a compiler enter its key, sorted; caches, threads and logs do not."""
    environ = {name: f"value of {name}" for name in (*_IN[implementation], *_OUT[implementation], "PATH")}
    found = _plan(implementation=implementation, environ=environ).inputs.environment
    assert found == tuple((name, environ[name]) for name in sorted(_IN[implementation]))


@pytest.mark.parametrize(
    ("layers", "keyed"),
    [
        ("{ours}", ()),
        ("{ours}:/theirs/a.so", (("OPENCL_LAYERS", "/theirs/a.so"),)),
        ("/theirs/a.so:/theirs/b.so", (("OPENCL_LAYERS", "/theirs/a.so:/theirs/b.so"),)),
    ],
)
def test_a_program_under_run_has_the_keys_that_it_has_without(
    layers: str, keyed: tuple[tuple[str, str], ...]
) -> None:
    """The layer that gpucache itself puts into a command changes no binary; those of others may."""
    ours = f"/some/where/{file_name('opencl_layer')}"
    environ = {"OPENCL_LAYERS": layers.format(ours=ours)}
    assert _plan(environ=environ).inputs.environment == keyed


@pytest.mark.parametrize("variable", ["OCLBACKEND_PLUGINS", "CL_CONFIG_REPLACE_IR_BEFORE_OPTIMIZER"])
def test_a_variable_that_names_a_file_is_refused(variable: str) -> None:
    """What the file holds is in no key, so such a build is not kept; PoCL never reads the variable."""
    with pytest.raises(OptionError, match=f"{variable} makes the compiler read a file .*; unset it"):
        _plan(implementation="intel", environ={variable: "/some/file"})
    assert _plan(environ={variable: "/some/file"}).inputs.environment == ()


def test_a_variable_set_to_nothing_is_set() -> None:
    """An empty value is a value of its own."""
    assert _plan(environ={"POCL_X": ""}).inputs.environment == (("POCL_X", ""),)


def test_an_implementation_nobody_knows_gets_the_widest_rule() -> None:
    """An implementation never tried covers every match and every variable of the others."""
    found = _plan(implementation="clvk", environ={"POCL_X": "1"})
    assert found.rule.every
    assert found.inputs.environment == (("POCL_X", "1"),)


def test_implementations_search_in_their_own_order() -> None:
    """PoCL looks in the current directory before the include directories, Intel after, then in its own."""
    assert _plan(implementation="pocl").rule.angle == (Place.CWD, Place.DIRS)
    assert _plan(implementation="intel").rule.angle == (Place.DIRS, Place.CWD, Place.SYSTEM)


def test_local_sizes_count_for_late_compilers_alone() -> None:
    """Local sizes are keyed where they change the binary, and nowhere else."""
    late = _plan(local_sizes=((64,),))
    early = _plan(local_sizes=((64,),), implementation="intel")
    assert (late.late, late.inputs.local_sizes) == (True, ((64,),))
    assert (early.late, early.inputs.local_sizes) == (False, ())


@pytest.mark.parametrize(
    ("option", "holds"),
    [("-g", True), ("-g2", True), ("-gline-tables-only", True), ("-w", False), ("-DG", False)],
)
def test_debug_options_put_paths_into_the_artifact(option: str, holds: bool) -> None:
    """A build with debug information can only be reused from the same place."""
    assert _plan(option).holds_paths is holds


@pytest.mark.parametrize(
    ("implementation", "home"), [("pocl", ""), ("intel", ""), ("nvidia", "/src"), ("other", "/src")]
)
def test_a_debug_build_of_an_unknown_compiler_is_for_its_directory(implementation: str, home: str) -> None:
    """A compiler that runs in the program's directory may write that into debug information."""
    request = BuildRequest(
        _PROGRAM, Target("opencl", "p/d"), options=("-gdwarf-4",), cwd="/src", searches_cwd=True
    )
    debugged = plan(request, Toolchain(implementation, (), ()), {})
    assert (debugged.holds_paths, debugged.inputs.file_name) == (True, home)
    assert plan(request._replace(options=()), Toolchain(implementation, (), ()), {}).inputs.file_name == ""


def test_the_toolchain_is_handed_on() -> None:
    """The toolchain of the request is the one in the key."""
    toolchain = Toolchain("intel", (("driver version", "1"),), ())
    request = BuildRequest(_PROGRAM, Target("opencl", "p/d"))
    assert plan(request, toolchain, {}).inputs.toolchain == toolchain
    assert plan(request._replace(cwd="/elsewhere"), toolchain, {}) == plan(request, toolchain, {})


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("-w", "-DX=1"), "-w -DX=1"),
        (("-DX=4 + 1",), '-DX="4 + 1"'),
        (("-I/a b/c",), '-I"/a b/c"'),
        (("-odd one",), '"-odd one"'),
        ((), ""),
    ],
)
def test_white_space_is_quoted_where_compilers_accept_it(command: tuple[str, ...], line: str) -> None:
    """OpenCL takes one string: a value with white space is quoted behind its option, as compilers read it."""
    assert command_line(command) == line


@pytest.mark.parametrize(
    ("implementation", "name", "refused"),
    [
        ("intel", "CL_CONFIG_CPU_TARGET_ARCH", True),
        ("intel", "CL_CONFIG_USE_VTUNE", False),
        ("pocl", "POCL_WORK_GROUP_METHOD", True),
        ("pocl", "POCL_CACHE_DIR", False),
        ("pocl", "CL_CONFIG_CPU_TARGET_ARCH", False),
    ],
)
def test_a_variable_that_changed_since_the_compiler_was_loaded_is_refused(
    implementation: str, name: str, refused: bool
) -> None:
    """The compiler may have read the value of then, so it shares no key with one that did not change."""
    before, now = {name: "now"}, {name: "now", f"{name}@loaded": ""}
    changed = _plan(implementation=implementation, environ=now)
    plain = _plan(implementation=implementation, environ=before)
    assert (changed.refusal is not None) is refused
    assert (changed.inputs.environment != plain.inputs.environment) is refused
    assert plain.refusal is None


@pytest.mark.parametrize(
    ("environ", "home"),
    [
        ({}, "/tmp/pocl/kcache"),
        ({"HOME": "/h"}, "/h/.cache/pocl/kcache"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/pocl/kcache"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/pocl/kcache"),
        ({"HOME": "/h", "POCL_KERNEL_CACHE": "0"}, "/h/.cache/pocl/uncached"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "POCL_CACHE_DIR": "place"}, "/src/place"),
    ],
)
def test_quoted_headers_are_searched_in_pocls_own_cache(environ: dict[str, str], home: str) -> None:
    """PoCL compiles a copy of the program there, and where that is its variables say."""
    assert _plan(environ=environ).rule.home == home
