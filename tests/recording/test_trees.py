"""Headers laid out elsewhere are found as where they were recorded, by every compiler's rules."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.backends.cuda import BACKEND as CUDA
from gpucache.backends.interface import Backend
from gpucache.backends.opencl import BACKEND as OPENCL
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.recorded_requests import Observed, observe
from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target, Toolchain
from gpucache.recording.builds import Seen
from gpucache.recording.reading import read_recording, replay
from gpucache.recording.writing import Tree, Writer

RULES = ("pocl", "intel", "nvidia", "other", "nvrtc")


def prepared(source: str, implementation: str, place: Path, options: Sequence[str], *, cwd: bool) -> Prepared:
    """A program that is requested in a directory, by the rules of an implementation."""
    cuda = implementation == "nvrtc"
    backend: Backend = CUDA if cuda else OPENCL
    target = Target("cuda", "sm_90") if cuda else Target("opencl", implementation)
    language = Language.CUDA_CPP if cuda else Language.OPENCL_C
    kind = ArtifactKind.CUBIN if cuda else ArtifactKind.OPENCL_BINARY
    request = BuildRequest(
        Program("p", language, source.encode()), target, tuple(options), artifact_kind=kind, cwd=str(place),
        searches_cwd=cwd,
    )  # fmt: skip
    return prepare(backend, request, Toolchain(implementation, (("device", "one"),), ("device",)), {})


def again(observed: Observed, tmp_path: Path, like: Prepared) -> Prepared:
    """The same program as a recording of it gives it back, laid out in another directory."""
    Writer(tmp_path / "recording").build(observed.build, Seen(), observed.contents)
    [one] = replay(read_recording(tmp_path / "recording"), tmp_path / "laid")
    assert one.source is not None, one.problem
    request = like.request._replace(
        program=like.request.program._replace(source=one.source),
        options=observed.build.options,
        include_dirs=one.include_dirs,
        cwd="/",
        searches_cwd=False,
    )
    backend: Backend = CUDA if like.request.program.language is Language.CUDA_CPP else OPENCL
    return prepare(backend, request, like.compilation.inputs.toolchain, {})


Case = tuple[Mapping[str, str], str, Sequence[str]]
CASES: dict[str, Case] = {
    "no header": ({}, "", ()),
    "in a folder": ({"inc/a.h": "x"}, '#include "a.h"', ("-Iinc",)),
    "in the second folder": ({"one/b.h": "x", "two/a.h": "y"}, "#include <a.h>", ("-Ione", "-Itwo")),
    "shadowed": ({"one/a.h": "x", "two/a.h": "y"}, "#include <a.h>", ("-Ione", "-Itwo")),
    "shadowed by an equal one": ({"one/a.h": "x", "two/a.h": "x"}, "#include <a.h>", ("-Ione", "-Itwo")),
    "beside a header": ({"inc/d/a.h": '#include "b.h"', "inc/d/b.h": "y"}, "#include <d/a.h>", ("-Iinc",)),
    "above a folder": ({"inc/a.h": '#include "../src/b.h"', "src/b.h": "y"}, "#include <a.h>", ("-Iinc",)),
    "in nested folders": (
        {"inc/a.h": "#include <d/b.h>\n#include <b.h>", "inc/d/b.h": "#pragma once\n"},
        "#include <a.h>",
        ("-Iinc", "-Iinc/d"),
    ),
    "nowhere": ({"inc/a.h": "x"}, "#include <a.h>\n#include <nowhere.h>", ("-Iinc",)),
    "through a macro": ({"inc/a.h": "x", "inc/d/b.h": "y"}, "#include HEADER", ("-Iinc", "-DHEADER=<d/b.h>")),
    "two names of one file": (
        {"inc/a.h": "x", "inc/same.h": "-> a.h"},
        "#include <a.h>\n#include <same.h>",
        ("-Iinc",),
    ),
    "a name with a blank": ({"my inc/a b.h": "x"}, '#include "a b.h"', ("-I", "my inc")),
    "beside the program": ({"a.h": "x", "inc/b.h": "y"}, '#include "a.h"\n#include "b.h"', ("-Iinc",)),
}  # fmt: skip


@pytest.mark.parametrize("implementation", RULES)
@pytest.mark.parametrize("name", CASES)
def test_a_program_has_its_key_elsewhere(tmp_path: Path, name: str, implementation: str) -> None:
    """A program recorded in one directory has the same key when it is laid out in another."""
    files, source, options = CASES[name]
    here = tmp_path / "here"
    here.mkdir()
    for path, text in files.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            os.link((here / path).parent / text[3:], here / path)
        else:
            (here / path).write_text(text)
    asked = prepared(source, implementation, here, options, cwd=implementation != "nvrtc")
    observed = observe(asked, ())
    assert again(observed, tmp_path, asked).fields == asked.fields
    assert str(tmp_path) not in str(observed.build)


def test_headers_that_are_where_they_were_are_used_there(tmp_path: Path) -> None:
    """An artifact with the places of its files hits only there, so nothing is laid out then."""
    header = tmp_path / "here" / "inc" / "a.h"
    header.parent.mkdir(parents=True)
    header.write_text("x")
    observed = observe(prepared('#include "a.h"', "pocl", header.parents[1], ("-Iinc",), cwd=True), ())
    Writer(tmp_path / "recording").build(observed.build, observed.places, observed.contents)
    folder = read_recording(tmp_path / "recording")
    [one] = replay(folder, tmp_path / "laid")
    assert (one.include_dirs, one.in_place) == ((str(header.parent),), True)
    header.write_text("y")
    [one] = replay(folder, tmp_path / "laid")
    assert one.include_dirs[0].startswith(str(tmp_path / "laid"))
    assert not one.in_place


def test_a_recording_keeps_what_other_rules_would_find(tmp_path: Path) -> None:
    """A program recorded for one device has, on another kind of device, the key that it would have there."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.h").write_text(folder)
    recorded, other = (
        prepared("#include <a.h>", kind, tmp_path, ("-Ione", "-Itwo"), cwd=True)
        for kind in ("intel", "other")
    )
    assert again(observe(recorded, ()), tmp_path, other).key == other.key


def test_a_folder_may_be_anywhere(tmp_path: Path) -> None:
    """The same program recorded in two places is one build."""
    builds = set()
    for place in ("here", "some/where/else"):
        folder = tmp_path / place / "inc"
        folder.mkdir(parents=True)
        (folder / "a.h").write_text("x")
        builds.add(
            observe(prepared('#include "a.h"', "pocl", folder.parent, ("-Iinc",), cwd=True), ()).build.digest
        )
    assert len(builds) == 1


PARTS = st.sampled_from(["a", "b", "c"])
FOLDERS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(
    folders=st.lists(FOLDERS, min_size=1, max_size=4),
    files=st.lists(FOLDERS.map(lambda folder: folder + "/x.h"), max_size=4),
    climbs=st.integers(0, 3),
)
def test_a_tree_keeps_how_files_lie(folders: list[str], files: list[str], climbs: int) -> None:
    """Files stay apart, none leaves the tree, and a path with steps up leads to the same file."""
    tree = Tree(folders, files, ["../" * climbs + "x.h"])
    places = {file: tree.place(file) for file in (*files, *folders)}
    assert len(set(places.values())) == len({*files, *folders})
    assert not any(place.startswith((".", "/")) or ".." in place for place in places.values())
    for folder in folders:
        for file in files:
            way = os.path.relpath(file, folder)
            if way.count("..") <= climbs:
                assert os.path.normpath(f"{places[folder]}/{way}") == places[file]
