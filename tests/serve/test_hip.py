"""Programs that call hipRTC, unmodified: served with equal results, recorded, and compiled ahead."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.native.build import find_compiler
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.hip import need_hip
from tests.patience import TIME_OUT_MS

pytestmark = pytest.mark.slow

_SOURCE = """template <class T> __global__ void show(T *out) { int unused; *out = T(VALUE); }
"""
_TARGET = "--gpu-architecture=gfx90a"
Run = Callable[..., tuple[str, int]]


def _built(folder: Path, name: str) -> Path:
    need_hip()
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler is here")
    source, made = Path(__file__).with_name(f"{name}.c"), folder / name
    subprocess.run(
        [*compiler.command, "-O1", str(source), "-o", str(made), "-l:libamdhip64.so.5"], check=True
    )
    return made


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("hip"), "hip_program")


@pytest.fixture(scope="session")
def rtc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that compiles kernels as rocFFT does."""
    return _built(tmp_path_factory.mktemp("rtc"), "rtc_program")


@pytest.fixture
def gpucache(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def call(*words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root"), TIMEOUT: TIME_OUT_MS, **variables}
        return run_text(words, env=environ, cwd=tmp_path / "here")

    (tmp_path / "here").mkdir()
    return call


@pytest.fixture
def run(gpucache: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path) -> Run:
    """A command's output, which must be the same without us, and how many of its builds hit."""

    def call(*words: object, **variables: str) -> tuple[str, int]:
        plain = gpucache(*words, **variables)
        report = tmp_path / "report.json"
        done = gpucache(
            *(sys.executable, "-m", "gpucache", "run", "--report", report, "--", *words), **variables
        )
        assert (_own(done.stdout), done.returncode) == (_own(plain.stdout), plain.returncode)
        outcomes: list[dict[str, Any]] = json.loads(report.read_text())["outcomes"]
        sys.stdout.write(f"{outcomes}\n{done.stderr}")  # shown if the test fails
        return done.stdout, sum(one["result"] == "hit" for one in outcomes)

    return call


def _own(text: str) -> str:
    """An output without the directory that comgr makes up for each compile."""
    return re.sub(r"comgr-\w+", "comgr", text)


def test_every_answer_is_hiprtcs_own(shown: Path, run: Run, tmp_path: Path) -> None:
    """Code, log, lowered name and errors are the same without us, at a miss and at a hit."""
    source = tmp_path / "shown.hip"
    source.write_text(_SOURCE)
    first, hits = run(shown, source, _TARGET, "-DVALUE=7", "-Wall")
    assert hits == 0
    assert "warning: unused variable" in first
    assert "lowered 0 _Z4showIiEvPT_" in first
    assert run(shown, source, _TARGET, "-DVALUE=7", "-Wall") == (first, 1)
    assert run(shown, source, _TARGET, "-DVALUE=7")[1] == 0
    assert run(shown, source, _TARGET)[1] == 0  # which does not compile
    assert run(shown, source, _TARGET)[1] == 0


def _appear(here: Path) -> dict[str, str]:
    (here / "hiprtc_runtime.h").write_text("#define __global__ __attribute__((global))\n#define ADD 1\n")
    return {}


def _variable(here: Path) -> dict[str, str]:
    return {"CPATH": str(here.parent / "others")}


def _header(here: Path) -> dict[str, str]:
    (here.parent / "named" / "value.h").write_text("#define VALUE 9\n")
    return {}


def _before(here: Path) -> dict[str, str]:
    (here.parent / "first" / "value.h").write_text("#define VALUE 10\n")
    return {}


def _gone(here: Path) -> dict[str, str]:
    (here.parent / "named" / "value.h").unlink()
    return {}


def _resources(here: Path) -> dict[str, str]:
    (here / "lib/clang/15.0.6/include").mkdir(parents=True)
    return {}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (_appear, True),
        (_variable, True),
        (_header, True),
        (_before, True),
        (_gone, False),
        (_resources, False),
    ],
)
def test_whatever_changes_a_compile_is_seen(
    shown: Path, run: Run, tmp_path: Path, change: Callable[[Path], dict[str, str]], kept: bool
) -> None:
    """An input that changes, appears or goes is a miss; the same again is a hit wherever it may be kept."""
    for folder in ("named", "first", "others"):
        (tmp_path / folder).mkdir()
    (tmp_path / "named" / "value.h").write_text("#define VALUE 8\n")
    source = tmp_path / "shown.hip"
    source.write_text(
        '#include "value.h"\n#ifndef ADD\n#define ADD 0\n#endif\n' + _SOURCE.replace("VALUE", "VALUE + ADD")
    )
    words = shown, source, _TARGET, f"-I{tmp_path / 'first'}", f"-I{tmp_path / 'named'}"
    run(*words)
    assert run(*words)[1] == 1
    variables = change(tmp_path / "here")
    assert run(*words, **variables)[1] == 0
    assert run(*words, **variables)[1] == int(kept)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("#include <memory.h>\n", ()),
        ("#include <limits.h>\n#define VALUE CHAR_BIT\n", ()),
        ("#define VALUE sizeof(__FILE__)\n", ()),
        ("", ("-include", "stdint.h")),
    ],
)
def test_nothing_wrong_is_served(
    shown: Path, run: Run, tmp_path: Path, text: str, options: tuple[str, ...]
) -> None:
    """Headers in memory and of the system, a source with the length of its path, unknown options."""
    source = tmp_path / "shown.hip"
    source.write_text(f"{text}#ifndef VALUE\n#define VALUE 1\n#endif\n{_SOURCE}")
    told = not options
    run(shown, source, _TARGET, *options)
    assert run(shown, source, _TARGET, *options)[1] == int(told)


@pytest.mark.parametrize("told", ["sizeof(__FILE__)", "sizeof(__PRETTY_FUNCTION__)", "sizeof(NAME(FIL))"])
def test_a_source_that_tells_its_path_hits_below_the_same_directory(
    shown: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Any made-up name hits; a source below a different directory is a different build."""
    for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"):
        monkeypatch.delenv(name, raising=False)
    (other := tmp_path / "other").mkdir()
    source = tmp_path / "shown.hip"
    source.write_text(f"#define NAME(x) __##x##E__\n#define VALUE {told}\n{_SOURCE}")
    words, elsewhere = (shown, source, _TARGET), {"TMPDIR": str(other)}
    found = [run(*words, **one)[1] for one in ({}, {}, elsewhere, elsewhere, {"TMP": "/tmp"}, {})]
    assert found == [0, 1, 0, 1, 1, 1]


_BUILD_ID = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"
"""The note of a library before the number of its build."""
_INSTALLED = Path("/usr/lib", str(sysconfig.get_config_var("MULTIARCH")))


@pytest.mark.parametrize("replaced", ["libamdhip64", "libamd_comgr", "libhiprtc-builtins", "libLLVM-15"])
def test_a_compiler_that_is_replaced_is_seen(shown: Path, run: Run, tmp_path: Path, replaced: str) -> None:
    """Copies hit, with another build of one of them nothing does, with its copy again, and with none."""
    source, folder = tmp_path / "shown.hip", tmp_path / "libraries"
    source.write_text(_SOURCE)
    words, elsewhere = (shown, source, _TARGET, "-DVALUE=7"), {"LD_LIBRARY_PATH": str(folder)}
    first = run(*words)
    folder.mkdir()
    for stem in dict.fromkeys(["libamdhip64", "libamd_comgr", "libhiprtc-builtins", replaced]):
        [installed] = [one for one in _INSTALLED.glob(f"{stem}.so.*") if one.name.count(".") == 2]
        shutil.copy(installed, folder / installed.name)
    [copy] = folder.glob(f"{replaced}.so.*")
    same = copy.read_bytes()
    at = same.index(_BUILD_ID) + len(_BUILD_ID)
    other = same[:at] + bytes([same[at] ^ 1]) + same[at + 1 :]
    for data, hits in ((same, [1]), (other, [0, 1]), (same, [1])):
        copy.unlink()
        copy.write_bytes(data)
        assert [run(*words, **elsewhere) for _ in hits] == [(first[0], one) for one in hits]
    shutil.rmtree(folder)
    assert [run(*words, **elsewhere), run(*words)] == [(first[0], 1)] * 2


def test_a_header_that_a_macro_asks_for_is_seen(shown: Path, run: Run, tmp_path: Path) -> None:
    """As a macro of libstdc++ asks for TBB's."""
    (folder := tmp_path / "named").mkdir()
    source = tmp_path / "shown.hip"
    asks = "#define ASKS __has_include(<one.h>)\n#if ASKS\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n"
    source.write_text(asks + _SOURCE)
    words = shown, source, _TARGET, f"-I{folder}"
    first = run(*words)
    assert run(*words) == (first[0], 1)
    (folder / "one.h").write_text("")
    there = run(*words)
    assert (there[1], there[0] != first[0]) == (0, True)
    (folder / "one.h").unlink()
    assert run(*words) == (first[0], 1)


def test_a_recording_is_compiled_ahead_for_other_architectures(
    rtc: Path, run: Run, gpucache: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    """A program that compiles as rocFFT does is recorded once; workers fill a system's cache for two
    architectures, and its starts compile nothing. What is not there it compiles itself, once."""
    ours = (sys.executable, "-m", "gpucache")
    recorded = gpucache(*ours, "record", "-o", tmp_path / "recording", "--", rtc, "gfx90a", 0, 2, rtc)
    assert recorded.stderr.count("helped") == 2
    done = gpucache(
        *(
            *ours,
            "--root",
            tmp_path / "system",
            "--json",
            "warm",
            "--shared",
            "--recording",
            tmp_path / "recording",
        ),
        *("--target", "hip:gfx90a", "--target", "hip:gfx1030", "--jobs", 2),
    )
    assert json.loads(done.stdout)["summary"]["built"] == 4
    system = {"GPUCACHE_SYSTEM_DIRS": str(tmp_path / "system")}
    for architecture in ("gfx90a", "gfx1030"):
        assert run(rtc, architecture, 0, 2, rtc, **system)[1] == 2
    assert run(rtc, "gfx90a", 0, 3, rtc, **system)[1] == 2
    assert run(rtc, "gfx90a", 0, 3, rtc, **system)[1] == 3


def test_a_helper_that_is_missing_is_no_matter(rtc: Path, run: Run, tmp_path: Path) -> None:
    """The program then compiles in its own process, and hits there what a helper compiled."""
    run(rtc, "gfx90a", 0, 1, rtc)
    assert run(rtc, "gfx90a", 0, 1, tmp_path / "missing")[1] == 1


def test_a_layer_serves_it_without_gpucache(
    rtc: Path, gpucache: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    """A layer has the libraries for hipRTC alone, and answers each program that asks the same."""
    layer, words = tmp_path / "layer", (rtc, "gfx90a", 0, 1, rtc)
    plain = gpucache(*words).stdout
    assert gpucache(sys.executable, "-m", "gpucache", "export", "layer", layer, "--", *words).stdout == plain
    lines = (layer / "gpucache.env").read_text().splitlines()
    served = gpucache(*words, **dict(line.split("=", 1) for line in lines), GPUCACHE_LAYER_TELL="1")
    assert served.stdout == plain
    assert "hit: rocfft_rtc.hip for hip:gfx90a" in served.stderr
    assert not [*layer.rglob("libgpucache_nvrtc_1*")]


@pytest.mark.parametrize("place", ["include", "llvm/lib/clang/15/include"])
def test_a_directory_of_headers_that_appears_is_seen(
    shown: Path, gpucache: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path, place: str
) -> None:
    """One that would be searched, or whose place has a pattern, also where only a layer is."""
    source, layer = tmp_path / "shown.hip", tmp_path / "layer"
    source.write_text(f"#if __has_include(<one.h>)\n#endif\n#define VALUE 1\n{_SOURCE}")
    words, variables = (shown, source, _TARGET), {"ROCM_PATH": str(tmp_path / "rocm")}
    gpucache(sys.executable, "-m", "gpucache", "export", "layer", layer, "--", *words, **variables)
    lines = (layer / "gpucache.env").read_text().splitlines()
    variables |= dict(line.split("=", 1) for line in lines) | {"GPUCACHE_LAYER_TELL": "1"}
    assert "hit: shown.hip" in gpucache(*words, **variables).stderr
    (tmp_path / "rocm" / place).mkdir(parents=True)
    (tmp_path / "rocm" / place / "one.h").write_text("")
    assert "miss: shown.hip" in gpucache(*words, **variables).stderr
