"""The parts of a request that reach an OpenCL compiler: options, include directories, environment."""

import re
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

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
    """White space and split forms do not distinguish options."""
    assert {_plan(*options).inputs.options for options in spellings} == {_plan(*spellings[0]).inputs.options}


@pytest.mark.parametrize(
    "options",
    [("-DX=2", "-DY=1"), ("-DY=1", "-DX=1"), ("-DX=1",), ("-DX=1 -DY=1",), ("-DX=1", "-DY=1", "-w")],
)
def test_other_options_are_others(options: tuple[str, ...]) -> None:
    """Values, order and number of options distinguish builds."""
    assert _plan(*options).inputs.options != _plan("-DX=1", "-DY=1").inputs.options


@pytest.mark.parametrize(("implementation", "one"), [("pocl", True), ("intel", True), ("other", False)])
def test_a_name_alone_is_defined_as_1_where_that_is_known(implementation: str, one: bool) -> None:
    """``-DX`` and ``-DX=1`` are one option of clang; for an untested driver they are two."""
    found = [_plan(option, implementation=implementation).inputs.options for option in ("-DX", "-DX=1")]
    assert (found[0] == found[1]) is one
    others = ("-DX=", "-DX=01", "-DX=2", "-UX")
    assert all(_plan(option, implementation=implementation).inputs.options not in found for option in others)


_OWN_WORDS = tuple(f"-I{own}" for own in _OWN)
_IN_ORDER = ("-w", "-DB", "-cl-std=CL2.0", "-DA", "-DB=2")
_EXTRA = "-Ib -DX -I /c"
_SIZES: dict[str, Any] = {"local_sizes": ((64,),)}
_PLANS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, object]]] = {
    "options keep their order": (
        _IN_ORDER,
        {},
        {
            "inputs.options": ("-w", "-DB=1", "-cl-std=CL2.0", "-DA=1", "-DB=2"),
            "command": (*_IN_ORDER, *_OWN_WORDS),
        },
    ),
    **{
        f"an include option leaves the options: {options}": (
            ("-w", *options),
            {},
            {
                "inputs.options": ("-w",),
                "include_dirs": ("/src/inc", *_OWN),
                "command": ("-w", "-I/src/inc", *_OWN_WORDS),
            },
        )
        for options in (("-Iinc",), ("-I", "inc"), ("-I inc",), ('-I "inc"',))
    },
    "each directory once at its first place, PyOpenCL's own last": (
        ("-Ib", "-Ia", "-I/src/b"),
        {"include_dirs": ("c", "a")},
        {
            "include_dirs": ("/src/b", "/src/a", "/src/c", *_OWN),
            "inputs.locations": ("/src/b", "/src/a", "/src/c", *_OWN),
        },
    ),
    "link/.. is for the system to follow": (
        ("-Ilink/../inc",),
        {},
        {"include_dirs": ("/src/link/../inc", *_OWN)},
    ),
    "options of PyOpenCL's variable come behind, and it is no variable": (
        ("-DA", "-Ia"),
        {"environ": {"PYOPENCL_BUILD_OPTIONS": "-DB -I b"}},
        {
            "inputs.options": ("-DA=1", "-DB=1"),
            "include_dirs": ("/src/a", *_OWN, "/src/b"),
            "inputs.environment": (),
        },
    ),
    "its single quotes hold nothing together": (
        (),
        {"environ": {"PYOPENCL_BUILD_OPTIONS": "-DX='1 -DY='2' -DZ=\"3 + 4\""}},
        {"inputs.options": ("-DX='1", "-DY='2'", "-DZ=3 + 4")},
    ),
    **{
        f"directories in {variable} are searched last and no words of ours": (
            ("-Ia",),
            {"implementation": implementation, "environ": {variable: _EXTRA}},
            {
                "inherited_dirs": ("/src/b", "/c"),
                "command": ("-I/src/a", *_OWN_WORDS),
                "inputs.environment": ((variable, _EXTRA),),
            },
        )
        for implementation, variable in (
            ("pocl", "POCL_EXTRA_BUILD_FLAGS"),
            ("intel", "OPENCL_PROGRAM_COMPILE_OPTIONS"),
            ("other", "AMD_OCL_BUILD_OPTIONS_APPEND"),
        )
    },
    "a variable set to nothing is set": (
        (),
        {"environ": {"POCL_X": ""}},
        {"inputs.environment": (("POCL_X", ""),)},
    ),
    "an unknown implementation gets the widest rule and every variable": (
        (),
        {"implementation": "clvk", "environ": {"POCL_X": "1"}},
        {"rule.every": True, "inputs.environment": (("POCL_X", "1"),)},
    ),
    "PoCL searches the current directory first": ((), {}, {"rule.angle": (Place.CWD, Place.DIRS)}),
    "Intel searches it behind, then its own": (
        (),
        {"implementation": "intel"},
        {"rule.angle": (Place.DIRS, Place.CWD, Place.SYSTEM)},
    ),
    "local sizes count for late compilers": ((), _SIZES, {"late": True, "inputs.local_sizes": ((64,),)}),
    "and for no other": (
        (),
        {**_SIZES, "implementation": "intel"},
        {"late": False, "inputs.local_sizes": ()},
    ),
    **{
        f"debug information holds paths: {option}": ((option,), {}, {"holds_paths": holds})
        for option, holds in (
            *(("-g", True), ("-g2", True), ("-gline-tables-only", True), ("-w", False), ("-DG", False)),
        )
    },
}


@pytest.mark.parametrize("name", _PLANS)
def test_what_is_planned(name: str) -> None:
    """The key and the compiler's arguments that options, directories and variables lead to."""
    options, more, expected = _PLANS[name]
    found = _plan(*options, **more)
    assert {path: attrgetter(path)(found) for path in expected} == expected


def test_pyopencls_own_headers_are_there() -> None:
    """The directory of headers that PyOpenCL adds to every build is found without importing it."""
    (own,) = _OWN
    assert Path(own, "pyopencl-random123").is_dir()


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
    """An option that ends the list in place of its value is refused with its form."""
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
    """An option that some compiler refuses or truncates shares no key with one that all accept."""
    with pytest.raises(OptionError, match=re.escape(words)):
        _plan(*as_pyopencl_reads(options))


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
    """gpucache's own layer changes no binary; other layers may."""
    ours = f"/some/where/{file_name('opencl_layer')}"
    environ = {"OPENCL_LAYERS": layers.format(ours=ours)}
    assert _plan(environ=environ).inputs.environment == keyed


@pytest.mark.parametrize("variable", ["OCLBACKEND_PLUGINS", "CL_CONFIG_REPLACE_IR_BEFORE_OPTIMIZER"])
def test_a_variable_that_names_a_file_is_refused(variable: str) -> None:
    """The file's content is in no key, so such a build is not kept; PoCL never reads the variable."""
    with pytest.raises(OptionError, match=f"{variable} makes the compiler read a file .*; unset it"):
        _plan(implementation="intel", environ={variable: "/some/file"})
    assert _plan(environ={variable: "/some/file"}).inputs.environment == ()


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
    """OpenCL takes one string: a value with white space is quoted after its option, as compilers read it."""
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
    """The compiler may have read the old value, so it shares no key with an unchanged one."""
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
    """PoCL compiles a copy of the program there, in a place given by its variables."""
    assert _plan(environ=environ).rule.home == home
