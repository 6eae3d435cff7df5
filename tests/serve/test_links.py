"""Programs that are compiled and linked separately under ``gpucache run``, with Intel's CPU runtime.

A link is served if nothing changed; after any change the program gets the same result as without gpucache.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from gpucache.native.build import find_compiler
from tests.children import run_text
from tests.serve.conftest import Done

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
PROGRAM = Path(__file__).with_name("linking_program.py")
INTEL = "Intel"
LINK_FAILED = -17
FIRST = "header=1 main lib link=main+lib"
_EDITING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
static void edit(const char *path, int flags) {
    const char *name = strrchr(path, '/');
    int ours = flags & (O_NONBLOCK | O_ACCMODE | O_PATH);
    if (ours || !getenv("TEST_EDITS") || strcmp(name ? name + 1 : path, "it.h")) return;
    struct stat before, now;
    stat(path, &before);
    do {
        FILE *file = fopen(path, "r+");
        fputc('#', file);
        fclose(file);
        stat(path, &now);
    } while (!memcmp(&before.st_mtim, &now.st_mtim, sizeof now.st_mtim));
}
#define OPENING(name)                                                  \\
    int name(const char *path, int flags, ...) {                       \\
        va_list rest;                                                  \\
        va_start(rest, flags);                                         \\
        int mode = va_arg(rest, int);                                  \\
        edit(path, flags);                                             \\
        return ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, #name))(path, flags, mode); \\
    }
OPENING(open)
OPENING(open64)
"""
"""A library to preload: as the compiler opens the header, that is written again, as it was."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the program and its header."""
    place = tmp_path / "program"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def link(run: Callable[..., Done], folder: Path) -> Callable[..., Done]:
    """Run the program with some steps under ``gpucache run``."""

    def call(steps: str, **variables: str) -> Done:
        return run(sys.executable, PROGRAM, INTEL, *steps.split(), **variables)

    return call


@pytest.fixture
def plain(environment: Mapping[str, str], folder: Path) -> Callable[[str], str]:
    def call(steps: str) -> str:
        return run_text([sys.executable, PROGRAM, INTEL, *steps.split()], env=environment, check=True).stdout

    return call


class Case(NamedTuple):
    """The program's words after an earlier run of it, and the results of its links then."""

    name: str
    then: str
    results: str
    before: str = FIRST
    variables: Mapping[str, str] = {}


CASES = (
    Case("the same", FIRST, "hit"),
    Case("another header", "header=3 main lib link=main+lib", "kept"),
    Case("another part", "header=1 main other link=main+other", "kept"),
    Case("another option of a part", "header=1 main lib:-DF=5 link=main+lib", "kept"),
    Case("another option of the link", "header=1 main lib link=main+lib:-cl-denorms-are-zero", "kept"),
    Case(
        "another order",
        "header=1 main lib other link=main+other+lib",
        "kept",
        before="header=1 main lib other link=main+lib+other",
    ),
    Case("a part compiled again", "header=1 main lib:-DF=5 link=main+lib lib link=main+lib", "kept hit"),
    Case("a header that changes after the compile", "header=1 main header=3 lib link=main+lib", "hit"),
    Case("a header that had changed before", "header=3 main header=1 lib link=main+lib", "kept"),
    Case(
        "a link of what was compiled before a change",
        "header=3 main lib link=main+lib",
        "kept",
        before="header=1 main header=3 lib link=main+lib",
    ),
    Case("a variable", FIRST, "kept", variables={"CL_CONFIG_USE_VECTORIZER": "False"}),
    Case("a variable that is set late", f"CL_CONFIG_USE_VECTORIZER==False {FIRST}", "passed passed passed"),
    Case("a variable for the link", "header=1 main lib CL_CONFIG_USE_VECTORIZER==0 link=main+lib", "left"),
    Case("a part with the time", "header=1 main timed link=main+timed", "passed passed"),
    Case("a library", "header=1 main lib link=lib:-create-library link=main+library", "passed passed"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_link_is_served_if_nothing_changed(
    link: Callable[..., Done], plain: Callable[[str], str], case: Case
) -> None:
    """The program prints the same as alone, and its links have the expected results."""
    before = link(case.before)
    assert (before.code, before.out, before.results[-1]) == (0, plain(case.before), "kept")
    done = link(case.then, **case.variables)
    assert (done.code, done.out) == (0, plain(case.then))
    assert done.results == case.results.split(), done.report


def test_a_later_start_needs_no_server(
    link: Callable[..., Done],
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    plain: Callable[[str], str],
) -> None:
    """Rows name the parts and answer the links, also those that missed after parts which rows had named."""
    command = (sys.executable, PROGRAM, INTEL)
    assert link(FIRST).results == ["kept"]
    done = run_without_python(*command, *FIRST.split())
    assert (done.returncode, done.stdout) == (0, plain(FIRST))
    assert "1 hit, 0 misses" in done.stderr
    assert link(f"{FIRST}:-cl-denorms-are-zero").results == ["kept"]
    done = run_without_python(*command, *f"{FIRST}:-cl-denorms-are-zero link=main+lib".split())
    assert (done.returncode, done.stdout) == (0, plain(FIRST) * 2)


@pytest.mark.parametrize("kind", ["file", "image"])
def test_rows_of_parts_are_read_wherever_they_are(
    link: Callable[..., Done],
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    root: Path,
    tmp_path: Path,
    kind: str,
) -> None:
    """A cache in a file keeps them, though they name no entry; and a root below one's own answers, too."""
    file = {"GPUCACHE_FILE": str(tmp_path / "cache.gpucache")} if kind == "file" else {}
    assert link(FIRST, **file).results == ["kept"]
    other = {"GPUCACHE_DIR": str(tmp_path / "other"), "GPUCACHE_SYSTEM_DIRS": str(root)}
    done = run_without_python(sys.executable, PROGRAM, INTEL, *FIRST.split(), **(file or other))
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


@pytest.mark.parametrize("links", [0, 20])
def test_a_part_whose_header_is_edited_while_it_is_compiled_has_no_mark(
    link: Callable[..., Done], plain: Callable[[str], str], folder: Path, tmp_path: Path, links: int
) -> None:
    """A row names it before, and afterwards its header is as before: its object may be of another version."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler is here")
    (source := tmp_path / "editing.c").write_text(_EDITING)
    library = str(source.with_suffix(".so"))
    flags = ("-shared", "-fPIC", "-w", "-o", library, str(source), "-ldl")
    subprocess.run([*compiler.command, *flags], check=True)
    for number in range(links):
        (folder / (f"{number}.h" if number else "it.h")).symlink_to(f"{number + 1}.h")
    assert link(FIRST, LD_PRELOAD=library).results == ["kept"]
    assert link(FIRST, LD_PRELOAD=library).results == ["hit"]
    done = link(FIRST, LD_PRELOAD=library, TEST_EDITS="1")
    assert (done.results, done.out) == (["passed"], plain(FIRST))


def test_a_required_link_fails_unless_it_is_a_hit(
    link: Callable[..., Done], plain: Callable[[str], str]
) -> None:
    """Parts are compiled, as a hit needs them; a program that is not a part is not."""
    assert link(FIRST, GPUCACHE_REQUIRE="1").out == f"{LINK_FAILED}\n"
    assert link(FIRST).results == ["kept"]
    done = link(FIRST, GPUCACHE_REQUIRE="1")
    assert (done.results, done.out) == (["hit"], plain(FIRST))
    assert link("header=1 main:-cl-kernel-arg-info", GPUCACHE_REQUIRE="1").results == ["refused"]


def test_a_damaged_link_is_linked_again(
    link: Callable[..., Done], plain: Callable[[str], str], root: Path
) -> None:
    """Each byte is checked before the driver gets it."""
    assert link(FIRST).results == ["kept"]
    [entry] = root.rglob("*.gpc")
    data = bytearray(entry.read_bytes())
    data[-100] ^= 1
    entry.write_bytes(data)
    done = link(FIRST)
    assert (done.results, done.out) == (["kept"], plain(FIRST))
    assert link(FIRST).results == ["hit"]


def test_links_are_not_recorded(
    gpucache: Callable[..., "subprocess.CompletedProcess[str]"], folder: Path
) -> None:
    """The program compiles as alone, and a message says so."""
    done = gpucache(
        "record", "-o", folder / "recording", "--", sys.executable, PROGRAM, INTEL, *FIRST.split()
    )
    assert done.returncode == 0
    assert "not recorded (2): clCompileProgram is not recorded" in done.stderr, done.stderr


def test_links_of_parts_with_other_options_supersede_no_other(
    link: Callable[..., Done], gpucache: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    """All of them are in use; a link is listed with its parts and their options, as rows name them, too."""
    assert link("header=1 main lib:-DF=5 lib:-DF=7").results == []
    assert link("header=1 main lib:-DF=5 link=main+lib lib:-DF=7 link=main+lib").results == ["kept"] * 2
    assert gpucache("verify", "--strict").returncode == 0
    assert "show unnamed -DF=7" in gpucache("--json", "inspect", "show").stdout
