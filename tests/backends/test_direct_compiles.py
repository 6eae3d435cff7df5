"""A program's own compile with NVRTC, stored as requested under a key that covers it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.backends.cuda.options import request_as_asked
from gpucache.engine.prepare import Prepared, closure_of, holds_paths, prepare
from gpucache.errors import OptionError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, CacheKey, Target, Toolchain
from tests.nvrtc import need_nvrtc

_SHOW = b'extern "C" __global__ void show(int *out) { *out = 7; }'
_VALUE = b'#include "value.h"\nextern "C" __global__ void show(int *out) { *out = VALUE; }'
_TOOLCHAIN = Toolchain("nvrtc", (("NVRTC version", "13.5"),), ())


@pytest.fixture
def installed() -> None:
    need_nvrtc()


def _request(
    source: bytes = _SHOW, name: str = "show.cu", options: tuple[str, ...] = ("-arch=sm_90",), **more: Any
) -> BuildRequest:
    return request_as_asked(source, name, options, **{"version": (13, 5), "cwd": "/src", **more})


def _prepared(request: BuildRequest, environ: Mapping[str, str] | None = None) -> Prepared:
    return prepare(BACKEND, request, _TOOLCHAIN, environ or {})


def _key(*given: Any, **more: Any) -> CacheKey:
    return _prepared(_request(*given, **more)).key


def _compile(request: BuildRequest) -> Artifact:
    return BACKEND.compile(request, BACKEND.plan(request, nvrtc.toolchain(request.target), {}))


@pytest.mark.parametrize(
    ("options", "version", "target", "kind"),
    [
        (("-arch=sm_90",), (13, 5), "sm_90", "cubin"),
        (("--gpu-architecture", "compute_80"), (13, 5), "compute_80", "ptx"),
        (("-arch=sm_80", "-arch=sm_90"), (13, 5), "sm_90", "cubin"),
        ((), (13, 0), "compute_75", "ptx"),
        ((), (12, 9), "compute_52", "ptx"),
        (("-arch=sm_90", "-dlto"), (13, 5), "sm_90", "ltoir"),
        (("-arch=compute_90", "--optix-ir"), (13, 5), "compute_90", "optixir"),
    ],
)
def test_the_options_say_what_comes_out(
    options: tuple[str, ...], version: tuple[int, int], target: str, kind: str
) -> None:
    """Target and kind of artifact are those that NVRTC derives from the options, or from none."""
    request = _request(options=options, version=version)
    assert (request.target, request.artifact_kind) == (Target("cuda", target), ArtifactKind(kind))


@pytest.mark.parametrize(
    "option",
    [
        "--no-such-option",
        "-pch",
        "--create-pch=a.pch",
        "--time=times.csv",
        "--fdevice-time-trace=trace",
        "-Xptxas=--options-file=more",
        "-Xcudafe=--anything",
        "--use-bundled-headers=place",
        "-no-cache",
        "--enable-tile",
        "",
        "-DX=1\n",
    ],
)
def test_what_a_hit_could_not_stand_for_is_refused(option: str) -> None:
    """Options that are unknown, read or write files or ask for no cache are left to NVRTC."""
    with pytest.raises(OptionError):
        _prepared(_request(options=("-arch=sm_90", option)))


def test_an_architecture_that_is_none_is_refused() -> None:
    """An architecture that NVRTC would refuse, or interpret by itself, is left to it."""
    for options in (("-arch=native",), ("-arch=90",), ("-arch= sm_80",)):
        with pytest.raises(OptionError):
            _request(options=options)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": _SHOW + b"\n"},
        {"options": ("-arch=sm_80",)},
        {"options": ("-arch=sm_90", "-fmad=false")},
        {"options": ("-arch=sm_90", "-DX")},
        {"name_expressions": ("show",)},
        {"headers": (("a.h", b""),)},
    ],
)
def test_whatever_counts_changes_the_key(changes: dict[str, Any]) -> None:
    """Source, options, name expressions and headers in memory are in the key."""
    assert _key(**changes) != _key()


def test_it_is_no_other_compiles_key() -> None:
    """gpucache's own compiles, under their own name, have another key."""
    own = BuildRequest(_request().program, Target("cuda", "sm_90"), artifact_kind=ArtifactKind.CUBIN)
    assert prepare(BACKEND, own, _TOOLCHAIN, {}).key != _key()


def test_headers_in_memory_count_by_name_and_content() -> None:
    """Headers under each other's names differ, and their includes on disk count."""
    one, other = (("a.h", b"int a;"), ("b.h", b"int b;")), (("a.h", b"int b;"), ("b.h", b"int a;"))
    assert _key(headers=one) != _key(headers=other)
    names = {
        include.name
        for include in _prepared(_request(headers=(("m.h", b"#include <x.h>"),))).closure.includes
    }
    assert names == {"m.h", "x.h"}


def test_the_last_part_of_the_name_counts() -> None:
    """Symbols contain it; the directories before it count only if they are in the artifact or the log."""
    one, other = _prepared(_request(name="place/show.cu")), _prepared(_request(name="/elsewhere/show.cu"))
    assert one.key == other.key != _key(name="other.cu")
    assert one.located_key != other.located_key
    assert not holds_paths(one, b"_7_show_cu_ _INTERNAL_", ("show.cu(1): warning",))
    assert holds_paths(one, b"", ("place/show.cu(1): warning",))
    assert holds_paths(one, b"place/show.cu")


@pytest.mark.parametrize("name", ["", "default_program", "<null>"])
def test_a_name_that_tells_nothing_is_not_shown(name: str) -> None:
    """Such a program is called by its first kernel, but the key has the name."""
    assert _request(name=name).program.name == "show"
    assert _key(name=name) != _key(name="show.cu")


def test_a_name_without_folders_binds_to_no_place() -> None:
    """All of it is in the key, wherever it shows."""
    prepared = _prepared(_request(b"__device__ int a[sizeof(__FILE__)];", name="show.cu"))
    assert not holds_paths(prepared, b"_7_show_cu_", ("show.cu(1): warning",))


def test_a_header_beside_the_source_is_a_place(tmp_path: Path) -> None:
    """NVRTC spells its path after the source's name, so it distinguishes directories of the source."""
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "value.h").write_text("#define VALUE 7\n")
    for name, path in (("show.cu", b"value.h"), ("sub/show.cu", b"sub/value.h")):
        prepared = _prepared(_request(_VALUE, name, cwd=str(tmp_path)))
        assert holds_paths(prepared, b"at " + path)
        assert not holds_paths(prepared, b"at value.cu")


def test_a_constant_of_a_name_with_folders_is_tied_to_it() -> None:
    """The artifact may contain the length of the whole name, which no program can find there."""
    source = b"__device__ int a[sizeof(__FILE__)];"
    assert holds_paths(_prepared(_request(source, name="place/show.cu")), b"")


@pytest.mark.parametrize("option", ["-lineinfo", "-G", "-dlto", "--optix-ir"])
def test_what_holds_or_hides_places_is_tied_to_them(option: str) -> None:
    """Line and debug information contain full paths, and an encrypted artifact may."""
    assert holds_paths(_prepared(_request(options=("-arch=sm_90", option))), b"")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("arch", ["-arch=sm_90", "-arch=compute_90"])
@pytest.mark.parametrize("option", ["-std=c++17", "-rdc=true"])
def test_a_name_in_symbols_is_no_place(tmp_path: Path, option: str, arch: str) -> None:
    """Kernels in an unnamed namespace have it, as CUB's do: the bytes and the key are the same anywhere."""
    source = b"""#include "value.h"
        namespace { template <class T> __global__ void show(T *out) { *out = bump(); } }"""
    # Without a function for other files NVRTC would put the time into the symbols.
    text = """__device__ int known() { return 1; }
        namespace { __device__ int count; __device__ int bump() { return count++; } }"""
    found = []
    for place in (tmp_path / "a", tmp_path / "other" / "deep"):
        (place / "inc").mkdir(parents=True)
        (place / "inc" / "value.h").write_text(text)
        options = (arch, option, "-Iinc")
        request = _request(source, options=options, name_expressions=("show<int>",), cwd=str(place))
        prepared, artifact = _prepared(request), _compile(request)
        lowered = artifact.lowered_names["show<int>"]
        assert "show_cu" in lowered
        assert not holds_paths(prepared, artifact.payload, (artifact.build_log, lowered))
        found.append((prepared.key, artifact.payload, lowered))
    assert found[0] == found[1]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("spelled", ["inc", ".", "{cwd}/inc"])
def test_a_path_is_found_as_it_is_spelled(tmp_path: Path, spelled: str) -> None:
    """NVRTC writes a header's path as the program spells its directory, so another spelling differs."""
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "value.h").write_text("__device__ const char where[] = __FILE__;\n")
    (tmp_path / "value.h").symlink_to("inc/value.h")
    source = b'#include <value.h>\nextern "C" __global__ void show(char *out) { *out = where[*out]; }'
    keys, folder = set(), spelled.format(cwd=tmp_path)
    for one in (folder, f"{tmp_path}/./inc"):
        prepared = _prepared(_request(source, options=("-arch=sm_90", f"-I{one}"), cwd=str(tmp_path)))
        keys.add(prepared.located_key)
    assert len(keys) == 2
    request = _request(source, options=("-arch=sm_90", f"-I{folder}"), cwd=str(tmp_path))
    prepared, payload = _prepared(request), _compile(request).payload
    assert f"{folder}/value.h\0".encode() in payload
    unsaid = prepared._replace(closure=prepared.closure._replace(tells_places=False))
    assert holds_paths(unsaid, payload)
    assert not holds_paths(unsaid, b"a . b / inc")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("option", ["-lineinfo", "-G", "-dlto", "--optix-ir", "-rdc=true"])
@pytest.mark.parametrize("name", ["show.cu", "/elsewhere/show.cu"])
def test_the_current_directory_counts_where_nvrtc_writes_it(tmp_path: Path, name: str, option: str) -> None:
    """If two directories give two artifacts, they give two keys."""
    (tmp_path / "other").mkdir()
    options = ("-arch=compute_90" if option == "--optix-ir" else "-arch=sm_90", option)
    requests = [_request(_SHOW, name, options, cwd=str(cwd)) for cwd in (tmp_path, tmp_path / "other")]
    first, second = map(_compile, requests)
    keys = {_prepared(request).located_key for request in requests}
    assert first.refusal is None
    assert len(keys) == 2 or first.payload == second.payload


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("source", "headers"),
    [
        (b'#line 1 "place/other.cu"\n' + _SHOW, ()),
        (b'# 1 "place/other.cu"\n' + _SHOW, ()),
        (
            b'#include "more.h"\nextern "C" __global__ void show(int *out) { *out = more(out); }',
            (("more.h", b"__device__ int more(int *out) { return out[1] * 3 + out[2]; }"),),
        ),
    ],
    ids=["line", "marker", "memory"],
)
def test_line_information_of_a_relative_name_is_tied_to_the_current_directory(
    tmp_path: Path, source: bytes, headers: tuple[tuple[str, bytes], ...]
) -> None:
    """NVRTC makes a full path of the name of a ``#line`` and of a header in memory: other bytes and key."""
    (tmp_path / "other").mkdir()
    first, second = (
        _request(source, "/elsewhere/show.cu", ("-arch=sm_90", "-lineinfo"), cwd=str(cwd), headers=headers)
        for cwd in (tmp_path, tmp_path / "other")
    )
    assert _compile(first).payload != _compile(second).payload
    assert _prepared(first).located_key != _prepared(second).located_key


@pytest.mark.usefixtures("installed")
def test_line_information_of_a_header_that_is_renamed_is_tied_to_the_current_directory(
    tmp_path: Path,
) -> None:
    """A ``#line`` with a relative name counts in a header on disk too, however it is written."""
    (tmp_path / "other").mkdir()
    header = b'#/**/li\\\nne 1 "place/other.h"\n__device__ int more(int *out) { return out[1] * 3; }\n'
    (tmp_path / "more.h").write_bytes(header)
    source = b'#include "more.h"\nextern "C" __global__ void show(int *out) { *out = more(out); }'
    options = ("-arch=sm_90", "-lineinfo", f"-I{tmp_path}")
    first, second = (
        _request(source, "/elsewhere/show.cu", options, cwd=str(cwd))
        for cwd in (tmp_path, tmp_path / "other")
    )
    assert _compile(first).payload != _compile(second).payload
    assert _prepared(first).located_key != _prepared(second).located_key


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ((), True),
        (("-lineinfo",), True),
        (("-dlto",), False),
        (("--optix-ir",), False),
        (("-G",), False),
        (("-lineinfo", "-rdc=true"), False),
    ],
)
def test_a_name_made_up_for_each_run_is_not_kept_where_it_cannot_be_replaced(
    options: tuple[str, ...], kept: bool
) -> None:
    """Debug information in which the name cannot be replaced would name a file of an earlier run."""
    request = _request(name="/tmp/a_b_0123abcd.cu", options=("-arch=sm_90", *options), made_up=True)
    assert request.program.name == "show"
    if kept:
        _prepared(request)
    else:
        with pytest.raises(OptionError, match="differs per run"):
            _prepared(request)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "where", ["beside the name", "current directory", "include path", "forced", "memory"]
)
def test_a_header_is_covered_wherever_nvrtc_finds_it(tmp_path: Path, where: str) -> None:
    """An edit of the header that NVRTC reads changes the artifact and the key."""
    folders = {name: tmp_path / name for name in ("named", "here", "included")}
    for folder in folders.values():
        (folder / "sub").mkdir(parents=True)
    beside = f"{folders['named']}/show.cu"
    place, name = {
        "beside the name": ("named", beside),
        "include path": ("included", beside),
        "forced": ("here", beside),
    }.get(where, ("here", "show.cu"))
    more: dict[str, Any] = {"cwd": str(folders["here"]), "include_dirs": (str(folders["included"]),)}
    if where == "forced":
        more["options"] = ("-arch=sm_90", "-include=value.h")
    if where == "memory":
        more["headers"] = (("sub/m.h", b'#include "../value.h"'),)
    source = _VALUE.replace(b"value.h", b"sub/m.h") if where == "memory" else _VALUE
    if where == "forced":
        source = source.partition(b"\n")[2]
    header = folders[place] / "value.h"
    header.write_text("#define VALUE 7\n")
    request = _request(source, name, **more)
    prepared = _prepared(request)
    first = _compile(request).payload
    header.write_text("#define VALUE 8\n")
    assert _compile(request).payload != first
    assert closure_of(request, prepared.compilation) != prepared.closure
    assert str(header) in prepared.closure.files


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("macro", "use"),
    [
        (b'PLACE "value.h"', b"#include PLACE\n"),
        (
            b"HAS(name) __has_include(name)",
            b'#if HAS("seven.h")\n#define VALUE 7\n#else\n#define VALUE 8\n#endif\n',
        ),
        (b"HERE __FILE__", b"#include <length.h>\n"),
    ],
    ids=["include", "probe", "path"],
)
def test_a_macro_of_a_header_in_memory_counts_in_other_texts(
    tmp_path: Path, macro: bytes, use: bytes
) -> None:
    """A macro that changes a source's includes, conditions or names changes the artifact and the key."""
    source = b'#include "names.h"\n' + use + _VALUE.partition(b"\n")[2]
    found = []
    for place in ("a", "other"):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "value.h").write_text(f"#define VALUE {len(place)}\n")
        (folder / "length.h").write_text("enum { VALUE = sizeof(HERE) };\n")
        if place == "other":
            (folder / "seven.h").touch()
        options = ("-arch=sm_90", f"-I{folder}")
        headers = (("names.h", b"#define " + macro + b"\n"),)
        request = _request(source, "/elsewhere/show.cu", options, headers=headers)
        prepared, payload = _prepared(request), _compile(request).payload
        located = holds_paths(prepared, payload)
        found.append((prepared.located_key if located else prepared.key, payload))
    assert found[0][1] != found[1][1]
    assert found[0][0] != found[1][0]


@pytest.mark.usefixtures("installed")
def test_a_directory_that_is_given_twice_counts_for_include_next(tmp_path: Path) -> None:
    """NVRTC finds a header in it again, which changes the artifact and the key."""
    for name, text in (
        ("a", "#ifdef ONE\n#undef ONE\n#define VALUE 2\n#else\n#define ONE\n#endif\n"),
        ("b", "#ifndef SEEN\n#define SEEN\n"),
        ("c", "#ifndef VALUE\n#define VALUE 1\n#endif\n"),
    ):
        (tmp_path / name).mkdir()
        following = "" if name == "c" else "#include_next <value.h>\n"
        ending = "#endif\n" if name == "b" else ""
        (tmp_path / name / "value.h").write_text(text + following + ending)
    source = _VALUE.replace(b'"value.h"', b"<value.h>")
    requests = [
        _request(source, options=("-arch=sm_90", *(f"-I{tmp_path / name}" for name in names)))
        for names in ("abc", "abac")
    ]
    assert len({_compile(request).payload for request in requests}) == 2
    assert len({_prepared(request).key for request in requests}) == 2


@pytest.mark.usefixtures("installed")
def test_a_header_in_memory_stands_before_those_on_disk(tmp_path: Path) -> None:
    """NVRTC takes the header in memory, and so does the closure."""
    (tmp_path / "value.h").write_text("#define VALUE 7\n")
    header = (("value.h", b"#define VALUE 8\n"),)
    both = _request(_VALUE, cwd=str(tmp_path), headers=header)
    alone = _request(_VALUE, cwd=str(tmp_path.parent), headers=header)
    assert _compile(both).payload == _compile(alone).payload


@pytest.mark.usefixtures("installed")
def test_it_is_compiled_as_nvrtc_does() -> None:
    """Bytes, log and lowered names are those of NVRTC called with the same name and options."""
    from cuda.bindings import nvrtc as api

    source = b"namespace n { template <class T> __global__ void show(T *out) { int u; *out = T(7); } }"
    request = _request(source, "odd name.cu", ("-arch=sm_90",), name_expressions=("n::show<int>",), cwd="/")
    ours = _compile(request)
    _, handle = api.nvrtcCreateProgram(source, b"odd name.cu", 0, [], [])
    api.nvrtcAddNameExpression(handle, b"n::show<int>")
    api.nvrtcCompileProgram(handle, 1, [b"-arch=sm_90"])
    cubin, log = bytes(api.nvrtcGetCUBINSize(handle)[1]), bytes(api.nvrtcGetProgramLogSize(handle)[1])
    api.nvrtcGetCUBIN(handle, cubin)
    api.nvrtcGetProgramLog(handle, log)
    assert (ours.payload, ours.build_log) == (cubin, log[:-1].decode())
    assert "odd name.cu(1): warning" in ours.build_log
    assert ours.lowered_names == {
        "n::show<int>": api.nvrtcGetLoweredName(handle, b"n::show<int>")[1].decode()
    }


@pytest.mark.usefixtures("installed")
def test_the_nvrtc_of_another_process_is_known_by_its_file() -> None:
    """Its fields are those of the same NVRTC in this process."""
    target = Target("cuda", "sm_90")
    (library, _) = nvrtc.nvrtc_libraries(nvrtc.version())
    assert library is not None
    path = library.parent / "." / library.name
    assert nvrtc.toolchain_at(path, nvrtc.version(), target, "") == nvrtc.toolchain(target)
