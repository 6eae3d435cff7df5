"""Exported layers with real programs and compilers: served without gpucache, and only identical builds."""

import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from gpucache.backends.installation import read_library
from gpucache.serve.exported_layer import Layer
from tests.children import run_text
from tests.patience import PATIENCE_S
from tests.pocl import PLATFORM, SYSTEM_ICD, need_pocl
from tests.serve.conftest import PROGRAM, Done, without_us

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="layers are for Linux")]
INTEL = "Intel"
LINKING = Path(__file__).with_name("linking_program.py")
NVRTC_PROGRAM = Path(__file__).with_name("nvrtc_program.py")
Call = Callable[..., "subprocess.CompletedProcess[str]"]
_WITH_HEADER = """
import sys, warnings
import pyopencl as cl
warnings.simplefilter("ignore")
platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[1]))
context = cl.Context(platform.get_devices()[:1])
source = '#include "value.h"\\nkernel void f(global int *a) { *a = VALUE; }'
for number in sys.argv[3:] or ["0"]:
    if number == "wait":
        print("waiting", flush=True)
        sys.stdin.readline()
        continue
    cl.Program(context, source).build([f"-DNUMBER={number}", *sys.argv[2].split()])
print("built")
"""


_NONE: Mapping[str, str] = {}


class Exported:
    """A layer, and programs that run with it and without gpucache."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self.folder = folder

    def export(self, *command: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        words = (sys.executable, "-m", "gpucache", "export", "layer", self.folder, "--", *command)
        done = run_text(words, env=self._environment, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done

    @property
    def variables(self) -> dict[str, str]:
        lines = (self.folder / "gpucache.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The environment in which a program is started."""
        own = {name: value for name, value in self._environment.items() if name != "GPUCACHE_DIR"}
        return {**own, **self.variables, "GPUCACHE_LAYER_TELL": "1", **variables}

    def run(
        self, *command: object, cwd: Path | None = None, variables: Mapping[str, str] = _NONE
    ) -> tuple[str, list[str]]:
        """The output of a command, and the lines of the libraries."""
        done = run_text(command, env=self.environment(variables), check=True, cwd=cwd)
        lines = [line.removeprefix("gpucache: ") for line in done.stderr.splitlines() if "gpucache: " in line]
        return done.stdout, lines


@pytest.fixture
def exported(environment: Mapping[str, str], tmp_path: Path) -> Exported:
    return Exported(environment, tmp_path / "layer")


_LIBRARIES = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib")


def _python(*arguments: object) -> Sequence[object]:
    return (sys.executable, *arguments)


def _results(told: Iterable[str]) -> list[str]:
    return [line.partition(":")[0] for line in told]


@pytest.mark.parametrize("name", [INTEL, PLATFORM])
def test_what_a_command_built_is_served_without_gpucache(
    exported: Exported, environment: Mapping[str, str], name: str, tmp_path: Path
) -> None:
    """One export of a cold cache is enough, late compilers included, and the directory does not matter."""
    if name == PLATFORM:
        need_pocl()
    alone = without_us(environment, name, 2, 3)
    done = exported.export(*_python(PROGRAM, name, 2, 3))
    assert done.stdout == alone and "exported 2 builds" in done.stderr
    out, told = exported.run(*_python(PROGRAM, name, 2, 3), cwd=tmp_path)
    assert (out, _results(told)) == (alone, ["hit", "hit"])
    _, told = exported.run(*_python(PROGRAM, name, 4))
    assert len(told) == 1 and "build options: now '-DFACTOR=4" in told[0]


def test_links_are_served_without_gpucache(exported: Exported, tmp_path: Path) -> None:
    """If a program is compiled and linked separately, its link is; with another header the parts differ."""
    steps = (
        "header=1",
        "main",
        "lib",
        "link=main+lib",
        "link=main+lib:-cl-denorms-are-zero",
        "other",
        "link=main+other",
    )
    done = exported.export(*_python(LINKING, INTEL, *steps), cwd=tmp_path)
    assert "exported 3 builds" in done.stderr
    served = exported.run(*_python(LINKING, INTEL, *steps), cwd=tmp_path)
    assert (served[0], _results(served[1])) == (done.stdout, ["hit"] * 6)
    out, told = exported.run(*_python(LINKING, INTEL, "header=4", *steps[1:4]), cwd=tmp_path)
    assert (out, _results(told)) == ("8\n", ["miss", "hit"])
    out, told = exported.run(*_python(LINKING, INTEL, *steps[:3], "header=4", steps[3]), cwd=tmp_path)
    assert (out, _results(told)) == ("2\n", ["hit"] * 3)
    out, told = exported.run(*_python(LINKING, INTEL, *steps[:3], "link=lib+main"), cwd=tmp_path)
    assert (out, _results(told)) == ("2\n", ["hit", "hit", "miss"])
    left = exported.export(*_python(LINKING, INTEL, "header=1", "main", "timed"), cwd=tmp_path)
    assert "__TIME__" in left.stderr


def test_pyopencls_mark_against_caches_does_not_matter(exported: Exported) -> None:
    """With its own cache on, PyOpenCL appends a different constant to each source."""
    exported.export("env", "PYOPENCL_NO_CACHE=0", *_python(PROGRAM, INTEL, 2))
    own = {"PYOPENCL_NO_CACHE": "0", "XDG_CACHE_HOME": str(exported.folder.parent / "fresh")}
    assert _results(exported.run(*_python(PROGRAM, INTEL, 2), variables=own)[1]) == ["hit"]


def test_a_program_that_does_not_compile_is_left(exported: Exported) -> None:
    """It gets its own compiler's error, and the export reports it."""
    done = exported.export(*_python(PROGRAM, INTEL, "+", 2))
    assert "left (1): " in done.stderr and "exported 1 build " in done.stderr
    out, told = exported.run(*_python(PROGRAM, INTEL, "+", 2))
    assert (out, _results(told)) == (done.stdout, ["miss", "hit"])


@pytest.fixture
def headers(tmp_path: Path) -> tuple[Path, Path]:
    """Two directories that are searched in order; the header is in the second."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "value.h").write_text("#define VALUE 1\n")
    return first, second


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "with_header.py"
    path.write_text(_WITH_HEADER)
    return path


@pytest.mark.parametrize("name", [INTEL, PLATFORM])
def test_a_header_counts_by_its_content(
    exported: Exported, headers: tuple[Path, Path], program: Path, name: str, tmp_path: Path
) -> None:
    """It may be touched but not changed, and no other may appear before it, also in the current directory."""
    if name == PLATFORM:
        need_pocl()
    first, second = headers
    header, here = second / "value.h", tmp_path / "here"
    here.mkdir()
    command = _python(program, name, f"-I{first} -I{second}")
    exported.export(*command, cwd=here)
    assert _results(exported.run(*command, cwd=here)[1]) == ["hit"]
    status = header.stat()
    os.utime(header, ns=(1, 1))
    assert _results(exported.run(*command, cwd=first.parent)[1]) == ["hit"]
    header.write_text("#define VALUE 2\n")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert exported.run(*command, cwd=here)[1][0].endswith(f"{header} has changed")
    header.write_text("#define VALUE 1\n")
    for place in (first, here):
        shutil.copy(header, place)
        assert exported.run(*command, cwd=here)[1][0].endswith(f"{place / 'value.h'} was not there")
        (place / "value.h").unlink()
    assert _results(exported.run(*command, cwd=here)[1]) == ["hit"]


def test_a_header_that_is_included_through_a_macro_is_served(
    exported: Exported, headers: tuple[Path, Path], program: Path, tmp_path: Path
) -> None:
    """As long as its directories have the same names, as any of them may be meant, and the same contents."""
    text = program.read_text()
    program.write_text(text.replace('\'#include "value.h"', "'#define H <value.h>\\n#include H"))
    assert program.read_text() != text
    command = _python(program, INTEL, f"-I{headers[1]}")
    assert "exported 1 build " in exported.export(*command, cwd=tmp_path).stderr
    assert _results(exported.run(*command, cwd=tmp_path)[1]) == ["hit"]
    (headers[1] / "other.h").touch()
    (told,) = exported.run(*command, cwd=tmp_path)[1]
    assert _results([told]) == ["miss"] and str(headers[1]) in told and "holds other files" in told
    (headers[1] / "other.h").unlink()
    assert _results(exported.run(*command, cwd=tmp_path)[1]) == ["hit"]
    (headers[1] / "value.h").write_text("#define VALUE 2\n")
    assert _results(exported.run(*command, cwd=tmp_path)[1]) == ["miss"]


def test_headers_in_relative_folders_move_with_the_program(
    exported: Exported, program: Path, tmp_path: Path
) -> None:
    """A moved tree is served as long as its contents are equal, also with names that lead upwards."""
    for name, value, above in (("one", 1, 1), ("two", 1, 1), ("three", 3, 1), ("four", 1, 4)):
        include = tmp_path / name / "include"
        include.mkdir(parents=True)
        (include / "value.h").write_text(f'#include "../above.h"\n#define VALUE {value}\n')
        (tmp_path / name / "above.h").write_text(f"#define ABOVE {above}\n")
    command = _python(program, INTEL, "-Iinclude")
    exported.export(*command, cwd=tmp_path / "one")
    told = [exported.run(*command, cwd=tmp_path / name)[1] for name in ("one", "two", "three", "four")]
    assert [_results(one) for one in told] == [["hit"], ["hit"], ["miss"], ["miss"]]


def test_a_variable_that_reaches_the_compiler_counts(exported: Exported) -> None:
    """A variable set, changed or unset since the export is a miss; others do not matter."""
    exported.export("env", "CL_CONFIG_A=1", *_python(PROGRAM, INTEL, 2))
    command = _python(PROGRAM, INTEL, 2)
    harmless = {"CL_CONFIG_A": "1", "CL_CONFIG_CPU_TBB_NUM_WORKERS": "2", "A": "B"}
    assert _results(exported.run(*command, variables=harmless)[1]) == ["hit"]
    for variables in ({"CL_CONFIG_A": "2"}, {"CL_CONFIG_A": "1", "CL_CONFIG_B": "1"}, _NONE):
        assert "variable" in exported.run(*command, variables=variables)[1][0]


@pytest.fixture
def driver(environment: dict[str, str], tmp_path: Path) -> Path:
    """A copy of the system's PoCL, with links to the files that it needs next to itself."""
    need_pocl()
    if not SYSTEM_ICD.is_file():
        pytest.skip("there is no PoCL of the system")
    name = SYSTEM_ICD.read_text().strip()
    system = next(filter(Path.is_file, (Path(place, name) for place in _LIBRARIES)), None)
    if system is None:
        pytest.skip(f"{name} is not where libraries usually lie")
    lib = tmp_path / "lib" / "machine"
    (lib / "pocl").mkdir(parents=True)
    library = Path(shutil.copy(system, lib))
    for each in (*system.parent.glob("pocl/*.so"), *system.parent.glob("libLLVM*.so*")):
        (lib / each.relative_to(system.parent)).symlink_to(each)
    (tmp_path / "share").symlink_to("/usr/share")
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "pocl.icd").write_text(f"{library}\n")
    environment["OCL_ICD_VENDORS"] = str(vendors)
    return library


def _rebuild(library: Path) -> None:
    data, old = library.read_bytes(), bytes.fromhex(read_library(library).build_id or "")
    library.write_bytes(data.replace(old, bytes([old[0] ^ 0xFF]) + old[1:], 1))


def test_a_driver_counts_by_its_content(exported: Exported, driver: Path) -> None:
    """A touched library is the same; a replaced one is a different driver, also behind a link."""
    command = _python(PROGRAM, PLATFORM, 2)
    exported.export(*command)
    assert _results(exported.run(*command)[1]) == ["hit"]
    os.utime(driver, ns=(1, 1))
    assert _results(exported.run(*command)[1]) == ["hit"]
    part = driver.parent / "pocl" / "libpocl-devices-basic.so"
    new = Path(shutil.copy(part, f"{part}.new"))
    for file in (new, driver):
        _rebuild(file)
    told = exported.run(*command)[1]
    assert _results(told) == ["miss"] and told[0].endswith(f"{driver} is another build")
    exported.export(*command)
    assert _results(exported.run(*command)[1]) == ["hit"]
    new.replace(part)
    assert _results(exported.run(*command)[1]) == ["miss"]


def test_size_and_time_of_a_driver_do_not_count(exported: Exported, driver: Path) -> None:
    """Archives and images restore times, so a replaced driver of the same size is recognised all the same."""
    command = _python(PROGRAM, PLATFORM, 2)
    exported.export(*command)
    before = driver.stat()
    _rebuild(driver)
    os.utime(driver, ns=(before.st_atime_ns, before.st_mtime_ns))
    told = exported.run(*command)[1]
    assert _results(told) == ["miss"] and told[0].endswith(f"{driver} is another build")


def test_libraries_of_a_driver_on_the_librarys_path_are_others(
    exported: Exported, driver: Path, tmp_path: Path
) -> None:
    """A compiler that a driver needs may come from that path and be a different file."""
    command, other = _python(PROGRAM, PLATFORM, 2), tmp_path / "other"
    exported.export(*command)
    other.mkdir()
    path = {"LD_LIBRARY_PATH": str(other)}
    assert _results(exported.run(*command, variables=path)[1]) == ["hit"]
    for each in driver.parent.glob("libLLVM*"):
        (other / each.name).symlink_to(each)
    told = exported.run(*command, variables=path)[1]
    assert _results(told) == ["miss"] and f"{other}/" in told[0] and told[0].endswith(" was not there")


def test_a_layer_may_be_used_elsewhere(gpucache: Call, exported: Exported, tmp_path: Path) -> None:
    """As in an image: with ``--at`` its variables name the place to which it is copied."""
    place = tmp_path / "image"
    command = _python(PROGRAM, INTEL, 2)
    done = gpucache("export", "layer", exported.folder, "--at", place, "--", *command)
    assert done.returncode == 0
    variables = exported.variables
    exported.folder.rename(place)
    exported.folder = place
    assert all(value.startswith(str(place)) for value in variables.values())
    assert set(variables) == {"GPUCACHE_LAYER", "OPENCL_LAYERS"}
    assert _results(exported.run(*command)[1]) == ["hit"]


def test_a_run_around_a_layer_answers_itself(run: Callable[..., Done], exported: Exported) -> None:
    """Under ``gpucache run`` the server answers, and the index is not used."""
    command = _python(PROGRAM, INTEL, 2)
    exported.export(*command)
    inside = run(*command, **exported.variables, GPUCACHE_LAYER_TELL="1")
    assert inside.results == ["hit"] and "gpucache: hit: " not in inside.err
    missed = run(*_python(PROGRAM, INTEL, 3), **exported.variables)
    assert missed.results == ["kept"]  # by one library, though two are named


def test_a_program_sees_what_is_exported_while_it_runs(
    exported: Exported, headers: tuple[Path, Path], program: Path
) -> None:
    """An index is replaced as a whole, and the next build reads the new one."""
    include = f"-I{headers[1]}"
    exported.export(*_python(program, INTEL, include, 1))
    with subprocess.Popen(
        [*map(str, _python(program, INTEL, include, 1, 2, "wait", 3))],
        env=exported.environment(_NONE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "waiting\n"
        exported.export(*_python(program, INTEL, include, 3))
        out, err = running.communicate("\n", timeout=PATIENCE_S)
    told = [line for line in err.splitlines() if line.startswith("gpucache: ")]
    assert out == "built\n"
    assert _results(line.removeprefix("gpucache: ") for line in told) == ["hit", "miss", "hit"]


@pytest.mark.parametrize("damage", ["cut", "gone", "garbage"])
def test_a_damaged_layer_makes_no_program_fail(exported: Exported, damage: str) -> None:
    """The program compiles as without the layer, and the reason is printed."""
    command = _python(PROGRAM, INTEL, 2)
    exported.export(*command)
    (row,) = exported.folder.rglob("*.row")
    data = row.read_bytes()
    row.unlink()
    if damage != "gone":
        row.write_bytes(data[:-1] if damage == "cut" else b"garbage" * 99)
        row.chmod(0o644)
    out, told = exported.run(*command)
    assert out == "128.0\n"
    why = "its source is not in the layer" if damage == "gone" else "is damaged or has another version"
    assert why in told[0] and _results(told) == ["miss"]


def test_a_misspelt_value_in_a_layers_environment_is_told(exported: Exported) -> None:
    """The program starts, and its builds are served."""
    exported.export(*_python(PROGRAM, INTEL, 2))
    wrong = {"GPUCACHE_REQUIRE": "maybe", "GPUCACHE_DISABLE": "nope", "GPUCACHE_LOG": "inof"}
    out, told = exported.run(*_python(PROGRAM, INTEL, 2), variables=wrong)
    assert out == "128.0\n"
    assert told[:3] == [
        "GPUCACHE_DISABLE=nope is not yes or no; set it to 1 or 0",
        "GPUCACHE_REQUIRE=maybe is not yes or no; set it to 1 or 0",
        "GPUCACHE_LOG=inof is not a level; set it to debug, info or warning",
    ]
    assert _results(told[3:]) == ["hit"]


def test_a_miss_of_a_layer_fails_where_a_hit_is_required(exported: Exported) -> None:
    """The build log names the difference; hits are served, and GPUCACHE_LOG reports both."""
    exported.export(*_python(PROGRAM, INTEL, 2))
    required = {"GPUCACHE_REQUIRE": "1", "GPUCACHE_LAYER_TELL": "", "GPUCACHE_LOG": "info"}
    out, told = exported.run(*_python(PROGRAM, INTEL, "log", 2, 3), variables=required)
    assert out.startswith("128.0\nRuntimeError -11 ")
    assert "GPUCACHE_REQUIRE is set, and this build missed: " in out
    assert "build options: now '-DFACTOR=3" in out
    assert _results(told) == ["hit", "miss"]
    shutil.rmtree(exported.folder / "v1")
    out, _ = exported.run(*_python(PROGRAM, INTEL, "log", 2), variables=required)
    assert "its source is not in the layer" in out


@pytest.mark.parametrize("arguments", [("core", "plain"), ("core", "lines"), ("bindings", "lines")])
def test_what_nvrtc_compiled_is_served_without_gpucache(
    exported: Exported, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Through either library, also with temporary file names."""
    _need_nvrtc()
    command = _python(NVRTC_PROGRAM, *arguments)
    done = exported.export(*command, cwd=tmp_path)
    out, told = exported.run(*command, cwd=tmp_path)
    assert (out, _results(told)) == (done.stdout, ["hit"])
    assert "LD_AUDIT" in exported.variables
    assert exported.variables["GLIBC_TUNABLES"] == "glibc.rtld.optional_static_tls=4096"


def test_a_header_of_nvrtc_counts_by_its_content(
    exported: Exported, headers: tuple[Path, Path], tmp_path: Path
) -> None:
    """As for OpenCL; and new builtins on LD_LIBRARY_PATH are a difference."""
    _need_nvrtc()
    header = headers[1] / "value.h"
    header.write_text("#define VALUE T(1)\n")
    command = _python(NVRTC_PROGRAM, "core", "header", headers[1])
    exported.export(*command)
    assert _results(exported.run(*command)[1]) == ["hit"]
    (headers[0] / "value.h").write_text("#define VALUE T(2)\n")
    path = {"LD_LIBRARY_PATH": str(headers[0])}
    assert _results(exported.run(*command, variables=path)[1]) == ["hit"]
    header.write_text("#define VALUE T(2)\n")
    assert exported.run(*command)[1][0].endswith(f"{header} has changed")


def test_builtins_that_nvrtc_finds_through_the_environment_count(exported: Exported, tmp_path: Path) -> None:
    """An NVRTC without builtins next to it takes them from LD_LIBRARY_PATH."""
    _need_nvrtc()
    from gpucache.backends.cuda import nvrtc

    library, builtins = nvrtc.nvrtc_libraries(nvrtc.version())
    assert library is not None and builtins is not None
    alone, there = tmp_path / "alone", {"LD_LIBRARY_PATH": str(builtins.parent)}
    alone.mkdir()
    copy = shutil.copy(library, alone)
    code = "import ctypes, runpy, sys\nctypes.CDLL(sys.argv[1])\nsys.argv = sys.argv[2:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = _python("-c", code, copy, NVRTC_PROGRAM, "bindings", "plain")
    exported.export("env", *(f"{name}={value}" for name, value in there.items()), *command)
    assert _results(exported.run(*command, variables=there)[1]) == ["hit"]
    there["LD_LIBRARY_PATH"] = f"{tmp_path}:{builtins.parent}"
    told = exported.run(*command, variables=there)[1]
    assert _results(told) == ["miss"] and "the variable LD_LIBRARY_PATH is set to" in told[0]


def test_commands_add_to_a_layer(exported: Exported, gpucache: Call) -> None:
    """Earlier exports stay, and both kinds of compilers are served."""
    _need_nvrtc()
    nvrtc, opencl = _python(NVRTC_PROGRAM, "bindings", "plain"), _python(PROGRAM, INTEL, 2)
    exported.export(*nvrtc)
    done = exported.export(*opencl)
    assert "which serves 2 (" in done.stderr
    assert _results(exported.run(*nvrtc)[1] + exported.run(*opencl)[1]) == ["hit", "hit"]
    checked = gpucache("verify", "--strict", "--cache", exported.folder)
    assert checked.returncode == 0 and "3 entries checked: no fault found" in checked.stdout


@pytest.mark.usefixtures("layer")
def test_everybody_may_read_a_layer(tmp_path: Path) -> None:
    """Whatever the umask of the exporting user."""
    before = os.umask(0o077)
    try:
        layer = Layer(tmp_path / "out")
        with layer.writing():
            assert layer.stores.user is not None
            layer.stores.user.rows.put("0" * 16, b"")
            layer.finish(["opencl"])
    finally:
        os.umask(before)
    paths = [path for path in tmp_path.rglob("*") if path.parent.name != "tmp"]
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o755}
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths if path.is_file()}
    library = modes.pop("libgpucache_opencl_layer.so")
    assert (library, modes) == (0o755, {"0" * 16 + ".row": 0o644, "gpucache.env": 0o644})


@pytest.mark.usefixtures("layer")
def test_an_export_that_stores_nothing_leaves_what_another_wrote(tmp_path: Path) -> None:
    """Both began when there was no layer; of the first nothing is removed."""
    first, second = Layer(tmp_path / "out"), Layer(tmp_path / "out")
    with first.writing():
        assert first.stores.user is not None
        first.stores.user.rows.put("0" * 16, b"")
        first.finish(["opencl"])
    before = _contents(tmp_path)
    with second.writing():
        assert second.exists
    assert _contents(tmp_path) == before


def test_a_new_layer_is_removed_before_another_export_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held until nothing is left."""
    layer, removed = Layer(tmp_path / "out"), []

    def remove(path: Path, **_: object) -> None:
        descriptor = os.open(layer.folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        removed.append(path.name)

    monkeypatch.setattr(shutil, "rmtree", remove)
    with layer.writing():
        pass
    assert removed == ["v1", "lib"]


def test_a_layer_of_an_earlier_version_is_refused(gpucache: Call, tmp_path: Path) -> None:
    """It had one file with an index of its own, which its libraries go on to read."""
    old = tmp_path / "layer"
    old.mkdir()
    for name in ("index", "gpucache.env"):
        (old / name).touch()
    done = gpucache("export", "layer", old, "--", "true")
    assert done.returncode == 2 and "is a layer of an earlier gpucache; name a new directory" in done.stderr


def test_a_layer_that_would_answer_nothing_is_not_made(exported: Exported, gpucache: Call) -> None:
    """None of its builds compile, which the command tolerates: that is a finding."""
    done = gpucache("export", "layer", exported.folder, "--", *_python(PROGRAM, INTEL, "+"))
    assert (done.returncode, exported.folder.exists()) == (3, False)
    assert "nothing was exported, and no layer is made: 1 build was left" in done.stderr
    exported.export(*_python(PROGRAM, INTEL, 2))
    done = gpucache("export", "layer", exported.folder, "--", "true")
    assert done.returncode == 0 and "gpucache: nothing was exported: no OpenCL" in done.stderr
    assert _results(exported.run(*_python(PROGRAM, INTEL, 2))[1]) == ["hit"]


@pytest.fixture
def interrupted(environment: Mapping[str, str]) -> Call:
    """Run gpucache with some arguments, and press Ctrl-C once it builds a late compiler's programs."""

    def call(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gpucache", *map(str, arguments)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = ""
            for line in process.stderr:
                said += line
                if "with all kernels" in line:
                    process.send_signal(signal.SIGINT)
        return subprocess.CompletedProcess(command, process.returncode, "", said)

    return call


def test_an_interrupted_export_leaves_the_layer_as_it_was(exported: Exported, interrupted: Call) -> None:
    """It reports that and exits as interrupted, whether or not there was a layer."""
    need_pocl()
    done = interrupted("export", "layer", exported.folder, "--", *_python(PROGRAM, PLATFORM, 2, 3))
    assert (done.returncode, exported.folder.exists()) == (130, False)
    assert f"interrupted; nothing was exported, and {exported.folder} is as it was" in done.stderr
    assert "was not built" not in done.stderr
    exported.export(*_python(PROGRAM, INTEL, 2))
    before = _contents(exported.folder)
    done = interrupted("export", "layer", exported.folder, "--", *_python(PROGRAM, PLATFORM, *range(4, 12)))
    assert (done.returncode, _contents(exported.folder)) == (130, before)


def test_interrupted_learning_keeps_the_commands_exit_code(interrupted: Call) -> None:
    """The message says that learning was interrupted, and which command builds the rest."""
    need_pocl()
    command = " ".join(map(str, _python(PROGRAM, PLATFORM, 2)))
    done = interrupted("run", "--learn", "--", "sh", "-c", f"{command}; exit 7")
    assert done.returncode == 7
    assert "building for the next run was interrupted after 0 of 1" in done.stderr
    assert "'gpucache warm --misses' builds 1 for the next run" in done.stderr


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _need_nvrtc() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from gpucache.errors import NoDeviceError
    from gpucache.native.locate import locate

    try:
        locate("nvrtc_audit")
    except NoDeviceError as error:
        pytest.skip(str(error))
