"""From a request to its keys: what changes them, what must not, and what ties an artifact to its place."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.engine.prepare import Prepared, closure_of, holds_paths
from gpucache.errors import OptionError

Ready = Callable[..., Prepared]
Tree = Callable[..., Path]


@pytest.mark.parametrize("spelling", ["include", "include/", "./include", "../{folder}/include", "link"])
def test_the_spelling_of_a_folder_is_no_input(
    ready: Ready, tree: Tree, tmp_path: Path, spelling: str
) -> None:
    """One directory gives one key, however it is spelled, as an option or apart."""
    include = tree("include")
    (tmp_path / "link").symlink_to(include)
    spelled = spelling.format(folder=tmp_path.name)
    wanted = ready(include_dirs=[include]).key
    assert ready(include_dirs=[spelled], cwd=tmp_path).key == wanted
    assert ready(options=["-I", spelled], cwd=tmp_path).key == wanted
    assert ready(options=[f"-I{spelled}"], cwd=tmp_path).key == wanted


def test_names_for_people_are_no_inputs(ready: Ready, tree: Tree, tmp_path: Path) -> None:
    """Another name, another file or a useless search directory leave the key unchanged."""
    include, unused = tree("include"), tree("unused", file="other.h")
    wanted = ready(include_dirs=[include]).key
    assert ready(include_dirs=[include], name="solver", path=tmp_path / "solver.cu").key == wanted
    assert ready(include_dirs=[unused, include]).key == wanted


@pytest.mark.parametrize(
    ("implementation", "name", "counts"),
    [
        ("intel", "CL_CONFIG_CPU_TARGET_ARCH", True),
        ("intel", "POCL_MAX_WORK_GROUP_SIZE", False),
        ("pocl", "POCL_MAX_WORK_GROUP_SIZE", True),
        ("pocl", "POCL_CACHE_DIR", False),
        ("nvrtc", "CL_CONFIG_CPU_TARGET_ARCH", False),
    ],
)
def test_variables_count_for_the_compiler_they_reach(
    ready: Ready, implementation: str, name: str, *, counts: bool
) -> None:
    """A variable changes only the keys of the compiler that reads it, unless it only names output files."""
    plain = ready(b"", implementation=implementation)
    changed = ready(b"", implementation=implementation, environ={name: "x"})
    assert (plain.key != changed.key) is counts


def test_closure_of_sees_the_disk_as_it_is_now(ready: Ready, tree: Tree) -> None:
    """The closure of a request that was made ready differs once a header is edited, and only then."""
    prepared = ready(include_dirs=[tree("include")])
    assert closure_of(prepared.request, prepared.compilation) == prepared.closure
    tree("include", value="8")
    assert closure_of(prepared.request, prepared.compilation) != prepared.closure


@pytest.mark.parametrize("implementation", ["nvrtc", "pocl", "intel"])
def test_only_a_path_in_the_payload_or_a_debug_option_ties_it(
    ready: Ready, tree: Tree, implementation: str
) -> None:
    """An artifact is tied to its place if it contains a directory as spelled, or by options with paths."""
    include = tree("include")
    plain = ready(b"", implementation=implementation, include_dirs=[include])
    assert not holds_paths(plain, b"compiled")
    assert holds_paths(plain, b"compiled" + os.fsencode(include / "value.h"))
    debug = "-G" if implementation == "nvrtc" else "-g"
    assert holds_paths(ready(b"", implementation=implementation, options=[debug]), b"compiled")


def test_line_options_tie_it_where_it_names_a_header(ready: Ready, tree: Tree) -> None:
    """With line options an artifact that contains the name of a header is tied, however the header is
    reached."""
    include = tree("include")
    lines = ready(b"#include <value.h>", options=["-lineinfo"], include_dirs=[f"{include}/../include"])
    assert holds_paths(lines, b'.file 1 "/elsewhere/value.h"')
    assert not holds_paths(lines, b'.file 1 "/nonexistent/gpucache/program.cu"')


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        (b"int x = __TIME__[0];", [], "the source uses __TIME__"),
        (b"int x;", ["-DBUILT=__DATE__"], "the build option '-DBUILT=__DATE__' puts the time"),
        *(
            (b"int x;", [f"-DBUILT={clock}"], f"the build option '-DBUILT={clock}' puts the time")
            for clock in ("__TIME__", "__TIMESTAMP__")
        ),
        (b"int x;", ["-DDATED=1"], None),
    ],
)
def test_a_program_with_the_time_in_it_is_refused(
    ready: Ready, source: bytes, options: list[str], reason: str | None
) -> None:
    """No entry is kept of a result that differs each time, whether by source or by option."""
    refusal = ready(source, options=options).refusal
    assert (refusal is None) if reason is None else (refusal or "").startswith(reason)


def test_headers_named_by_hand_stand_in_for_a_macro(ready: Ready, tree: Tree) -> None:
    """With the headers of a macro's include named, their content is the input and nothing else is."""
    include = tree("include")
    source = b"#define NAME <value.h>\n#include NAME\n"
    wanted = {"include_dirs": [include], "headers": [str(include / "value.h")]}
    before = ready(source, **wanted)
    tree("include", file="other.h")
    assert before.refusal is None
    assert ready(source, **wanted).key == before.key
    tree("include", value="8")
    assert ready(source, **wanted).key != before.key


def test_an_option_that_writes_files_is_refused(ready: Ready) -> None:
    """A build option with side effects is an error that names it, not a key."""
    with pytest.raises(OptionError, match="-fdevice-time-trace=x"):
        ready(options=["-fdevice-time-trace=x"])
