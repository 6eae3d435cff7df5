"""A compiler that was rebuilt under the same version is recognised as different, wherever it is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import xxhash

from gpucache.backends import installation
from gpucache.backends.installation import Installation
from gpucache.host import file_stamps
from gpucache.keys import NOT_FOUND, REPLACED
from gpucache.native.build import find_compiler
from gpucache.payload.elf import Library
from tests.children import run_python, run_text
from tests.cli.conftest import entry_of, version_of
from tests.patience import PATIENCE_S, tick

_BUILD, _READ = "compiler build", "compiler built-ins"
_POCL = Path("/usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0")
_POCL_READS = Path("/usr/share/pocl")
_FIELDS = """
import json, sys
import pyopencl
from gpucache.backends.opencl import platforms
print(json.dumps({
    str(platforms.installation(each.handle).libraries[0]): dict(platforms.toolchain(each.handle).fields)
    for each in platforms.devices()
}))
"""


@pytest.fixture(autouse=True)
def no_mark_is_remembered() -> None:
    """Files of one name change within a test."""
    installation._facts.clear()


def test_a_file_that_is_no_library_has_no_build_id(tmp_path: Path) -> None:
    """A file that is not valid ELF has no build id, and a missing one never equals a real one."""
    (tmp_path / "libnvrtc.so").write_bytes(b"\x7fELF\x02\x01 and nothing more")
    for name in ("libnvrtc.so", "absent.so"):
        assert installation.read_library(tmp_path / name) == Library()


def test_a_library_without_a_build_id_is_told_by_its_content(tmp_path: Path) -> None:
    """A large one is not read whole, but an inserted byte is noticed anywhere."""
    content = os.urandom(4 * 1024**2)
    marks = []
    for number, data in enumerate((content, content, content[:2_000_000] + b"!" + content[2_000_000:])):
        library = tmp_path / str(number) / "libcompiler.so"
        library.parent.mkdir()
        library.write_bytes(data)
        marks.append(installation.mark(library))
    assert marks[0] == marks[1] != marks[2]


def test_what_cannot_be_read_is_a_value_of_its_own(tmp_path: Path) -> None:
    """It raises nothing, and equals neither a readable compiler nor one that was not found."""
    (tmp_path / "empty.h").write_bytes(b"")
    kinds = [
        Installation((tmp_path / "absent.so",), (tmp_path / "absent.h",)),
        Installation((tmp_path / "empty.h",), (tmp_path / "empty.h",)),
        Installation((), ()),
    ]
    fields = [dict(kind.fields()) for kind in kinds]
    assert fields[2] == {_BUILD: NOT_FOUND, _READ: NOT_FOUND}
    for label in (_BUILD, _READ):
        assert len({each[label] for each in fields}) == 3


def test_a_library_is_told_by_an_address_in_it() -> None:
    """An address outside all libraries gives none."""
    if sys.platform != "linux":
        pytest.skip("what is loaded is told on Linux only")
    library = installation.loaded("libc.so")
    assert library is not None
    assert library.samefile(_of_printf() or "/")
    assert installation.library_at(8) is None


_AT_ONCE = """
import _ctypes
from concurrent.futures import ThreadPoolExecutor
from gpucache.backends.installation import with_needed
from gpucache.backends.installation import loaded

def ask(number):
    for _ in range(100):
        with_needed(loaded("libc.so"))

def load(number):
    for _ in range(1000):
        _ctypes.dlclose(_ctypes.dlopen(sys.argv[1], 0))

with ThreadPoolExecutor(4) as threads:
    asking = [threads.submit(work, 0) for work in (ask, load, ask, load)]
for each in asking:
    each.result()
"""


def test_asking_what_is_loaded_while_a_library_is_loaded_comes_to_an_end(tmp_path: Path) -> None:
    """A thread that queries keeps no lock of the loader while it waits for the interpreter's."""
    if sys.platform != "linux":
        pytest.skip("what is loaded is told on Linux only")
    library = tmp_path / "another.so"
    shutil.copy(installation.loaded("_ctypes") or "", library)
    subprocess.run([sys.executable, "-c", "import sys" + _AT_ONCE, library], check=True, timeout=PATIENCE_S)


def _of_printf() -> Path | None:
    import ctypes

    address = ctypes.cast(ctypes.CDLL(None).printf, ctypes.c_void_p).value
    return installation.library_at(address or 0)


def _copied(folder: Path) -> Path:
    """PoCL copied below a directory with all its own files, and a vendors directory that names it."""
    if not (_POCL.is_file() and _POCL_READS.is_dir()):
        pytest.skip(f"PoCL of Debian is not installed: no {_POCL}")
    inside = folder / "lib" / "here"
    inside.mkdir(parents=True)
    shutil.copy(_POCL, inside)
    shutil.copytree(_POCL.parent / "pocl", inside / "pocl")
    shutil.copytree(_POCL_READS, folder / "share" / "pocl")
    (folder / "vendors").mkdir()
    (folder / "vendors" / "pocl.icd").write_text(f"{inside / _POCL.name}\n", encoding="utf-8")
    return folder


def _environment(copy: Path) -> Mapping[str, str]:
    return {**os.environ, "OCL_ICD_VENDORS": str(copy / "vendors"), "POCL_CACHE_DIR": str(copy / "kcache")}


def _fields(copy: Path) -> Mapping[str, str]:
    found = json.loads(run_python("-c", _FIELDS, env=_environment(copy)))
    return next(found[library] for library in found if library.startswith(str(copy)))


def _edit(file: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert old in data
    assert len(old) == len(new)
    file.write_bytes(data.replace(old, new, 1))


@pytest.mark.slow
def test_pocl_rebuilt_under_its_version_is_another_toolchain(tmp_path: Path) -> None:
    """Its place does not matter; its library, a library that it loads, a header or a bitcode of it does."""
    original = _copied(tmp_path / "original")
    before = _fields(original)
    assert NOT_FOUND not in (before[_BUILD], before[_READ])
    copy = _copied(tmp_path / "elsewhere" / "and deeper")
    assert _fields(copy) == before
    # In each process one file of either kind has changed, as a process takes seconds.
    for names in (
        ("lib/here/libpocl.so.2.10.0", "share/pocl/include/_kernel.h"),
        ("lib/here/pocl/libpocl-devices-pthread.so", "share/pocl/kernel-x86_64-pc-linux-gnu-avx2.bc"),
    ):
        kept = {copy / name: (copy / name).read_bytes() for name in names}
        for file, data in kept.items():
            build_id = installation.read_library(file).build_id
            old = bytes.fromhex(build_id) if build_id else data[len(data) // 2 :][:64]
            _edit(file, old, bytes([old[0] ^ 1]) + old[1:])
        after = _fields(copy)
        assert {field for field in before if before[field] != after[field]} == {_BUILD, _READ}, names
        for file, data in kept.items():
            file.write_bytes(data)


def _entry_file(root: Path) -> Path:
    [file] = root.rglob("*.gpc")
    return file


def _gpucache(copy: Path, root: Path, *arguments: str) -> str:
    done = run_text(
        [sys.executable, "-m", "gpucache", "--root", str(root), *arguments], env=_environment(copy)
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_what_another_build_of_pocl_made_is_a_miss_that_says_so(tmp_path: Path) -> None:
    """And stale, once it was at rest for long while programs hit. The unchanged copy elsewhere hits."""
    original, copy = _copied(tmp_path / "original"), _copied(tmp_path / "copy")
    (tmp_path / "k.cl").write_text("kernel void k(global int *o) { *o = 7; }\n", encoding="ascii")
    devices = json.loads(_gpucache(original, tmp_path / "root", "--json", "devices"))
    names = [row["target"] for row in devices["outcomes"] if "3.1+debian" in row["driver_version"]]
    ask = ("warm", str(tmp_path / "k.cl"), "--target", names[0])
    assert "1 built" in _gpucache(original, tmp_path / "root", *ask)
    assert "1 hit" in _gpucache(copy, tmp_path / "root", *ask, "--check")
    _edit(copy / "share" / "pocl" / "include" / "_kernel.h", b"pocl", b"POCL")
    told = re.sub(r"\s+", " ", _gpucache(copy, tmp_path / "root", *ask, "--check"))
    assert "the compiler's own headers or built-in functions changed" in told
    store, older = entry_of(tmp_path / "root", names[0])
    _entry_file(tmp_path).unlink()
    assert "1 built" in _gpucache(copy, tmp_path / "root", *ask)
    newer = entry_of(tmp_path / "root", names[0])[1]
    _entry_file(tmp_path).unlink()
    version_of(store, older, 90, 40)
    version_of(store, newer, 41, 0)
    found = json.loads(_gpucache(copy, tmp_path / "root", "--json", "verify"))
    assert [(each["kind"], each["entry"]) for each in found["outcomes"]] == [("stale", str(older.key))]


class _Shelf(dict[str, bytes]):
    """Memos in memory."""

    keeps = True
    recall = dict.get
    remember = dict.__setitem__


def test_a_file_that_is_as_it_was_is_not_read_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamp is enough unless it is young."""
    shelf, library = _Shelf(), tmp_path / "libcompiler.so"
    old, new = time.time_ns() - 10**12, time.time_ns()

    def marked(content: bytes, modified_ns: int) -> str:
        library.write_bytes(content)
        os.utime(library, ns=(modified_ns, modified_ns))
        return again()

    def again() -> str:
        installation._facts.clear()
        with installation.remembered(shelf, "compiler"):
            return installation.mark(library)

    young = marked(b"one", old)  # its change is young, whatever its modification time says
    assert not shelf
    monkeypatch.setattr(time, "time_ns", lambda: new + 10**11)
    monkeypatch.setattr(file_stamps, "_local", {tmp_path.stat().st_dev: True})
    assert again() == young
    assert shelf
    monkeypatch.setattr(xxhash, "xxh3_128", None)  # nothing is read from here on
    assert again() == young
    monkeypatch.undo()
    before = library.stat().st_ctime_ns
    while library.stat().st_ctime_ns == before:  # which steps by up to a second
        changed = marked(b"two", old)
    assert changed != young


_HELD = """
import ctypes, sys
from pathlib import Path
from gpucache.backends import installation

library, *others = map(Path, sys.argv[1:])
ctypes.CDLL(str(library))
print(installation.marks_here([library])[0], flush=True)
for line in sys.stdin:
    print(installation.marks_here([library, *others])[0], flush=True)
"""


class _Holder:
    """A process that has loaded a library, and says which one that is."""

    def __init__(self, *libraries: Path, before: tuple[str, ...] = ()) -> None:
        command = [*before, sys.executable, "-c", _HELD, *map(str, libraries)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        )
        self.first = self._line()

    def now(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()

    def end(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")


@pytest.fixture(params=[True, False], ids=["with build ids", "without build ids"])
def builds(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Two directories with two builds of one library, of one size."""
    compiler = find_compiler()
    if sys.platform != "linux" or compiler is None:
        pytest.skip("loaded libraries are found on Linux, and this one is compiled")
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / "library.c").write_text(f"int version(void) {{ return {number}; }}\n")
        kind = "sha1" if request.param else "none"
        made = ("-o", tmp_path / str(number) / "libmade.so.1", tmp_path / "library.c")
        words = (*compiler.command, "-shared", "-fPIC", f"-Wl,--build-id={kind}", *made)
        subprocess.run(list(map(str, words)), check=True)
    return tmp_path / "1", tmp_path / "2"


def _is_of(build: Path, said: str) -> bool:
    """Whether a process that had loaded a build says so, or at least that it is not what is there now."""
    file = build / "libmade.so.1"
    return said == installation.mark(file) if installation.read_library(file).build_id else REPLACED in said


def test_a_library_that_was_replaced_goes_on_in_its_process(builds: tuple[Path, Path]) -> None:
    """Its build id is in memory; without one nothing is known of it."""
    old, new = builds
    keep = shutil.copytree(old, old.with_name("kept"))
    holder = _Holder(old / "libmade.so.1")
    assert holder.first == holder.now() == installation.mark(old / "libmade.so.1")
    (new / "libmade.so.1").replace(old / "libmade.so.1")
    assert _is_of(keep, holder.now())
    holder.end()


def test_a_library_whose_directory_is_another_by_now_goes_on_in_its_process(
    builds: tuple[Path, Path],
) -> None:
    """As where a link leads to the newest installation; the old one is still there."""
    old, new = builds
    link = old.with_name("current")
    link.symlink_to(old)
    holder = _Holder(link / "libmade.so.1")
    assert holder.now() == installation.mark(old / "libmade.so.1")
    link.unlink()
    link.symlink_to(new)
    assert _is_of(old, holder.now())
    holder.end()


def test_another_loaded_library_of_the_name_is_not_this_one(builds: tuple[Path, Path]) -> None:
    """Two installations of a compiler may be loaded, or only one of them so far."""
    first, second = (build / "libmade.so.1" for build in builds)
    holder = _Holder(first)
    assert holder.first == installation.mark(first)
    holder.end()
    holder = _Holder(second, first)
    assert holder.now() == installation.mark(second)
    holder.end()


def test_a_library_that_was_overwritten_on_an_overlay_goes_on_in_its_process(
    builds: tuple[Path, Path],
) -> None:
    """As in a container: the file has the same number, and the process the file of the image."""
    old, new = builds
    top = old.parent
    for name in ("upper", "work", "merged"):
        (top / name).mkdir()
    options = f"lowerdir={old},upperdir={top / 'upper'},workdir={top / 'work'}"
    mounting = f'mount -t overlay overlay -o {options} {top / "merged"} && exec "$@"'
    before = ("unshare", "--mount", "--map-root-user", "sh", "-c", mounting, "sh")
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no overlay can be mounted here")
    library = top / "merged" / "libmade.so.1"
    writing = f"Path({str(library)!r}).write_bytes(Path({str(new / library.name)!r}).read_bytes())\nfor line"
    words = [*before, sys.executable, "-c", _HELD.replace("for line", writing, 1), str(library)]
    done = subprocess.run(words, input="\n", capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == installation.mark(old / library.name)
    assert _is_of(old, second)


_READING = """
import sys
from pathlib import Path
from gpucache.backends import installation

files = tuple(map(Path, sys.argv[1:]))
one = installation.Installation((), files)
for line in sys.stdin:
    print(dict(one.fields())["compiler built-ins"], flush=True)
    sys.stdin.readline()
    print(installation.replaced_file(), flush=True)
"""


def test_a_file_that_a_compiler_may_have_read_before_is_not_known(tmp_path: Path) -> None:
    """Compilers keep what they have read, and a file that was replaced since the process began may differ."""
    old, other = tmp_path / "kernel.bc", tmp_path / "other.bc"
    for file in (old, other):
        file.write_text("as it was")
    tick(tmp_path)
    command = [sys.executable, "-c", _READING, str(old), str(other)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:

        def ask() -> str:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().rstrip("\n")

        assert REPLACED not in ask()
        (tmp_path / "new").write_text("another b")
        (tmp_path / "new").replace(old)
        assert [ask(), ask()] == [str(old), f"{REPLACED}{old}"]
        process.communicate(timeout=PATIENCE_S)
