"""Programs that call NVRTC, under ``gpucache run``: served, stored and explained, with equal results."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gpucache.answers.lookup import Miss, Verdict
from gpucache.answers.run import Intercepted, RunResult
from gpucache.assembly import open_stores
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.backends.cuda.options import request_as_asked
from gpucache.engine.explain import explain
from gpucache.engine.lookup import publish
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import NoEntry
from gpucache.errors import NoDeviceError
from gpucache.host.file_stamps import files_seen
from gpucache.keys import SOURCE_NAME, cache_key
from gpucache.model import ArtifactKind
from gpucache.native.build import BUILT, build, find_compiler
from gpucache.native.locate import locate
from gpucache.serve import nvrtc as serve_nvrtc
from gpucache.serve.environment import TIMEOUT, Libraries, intercepted
from gpucache.serve.file_names import read_name
from gpucache.serve.nvrtc import Call, NVRTCServing, prepare_call
from gpucache.serve.server import HEARD, Reply, serve
from gpucache.serve.wire import Fields, Kind
from gpucache.settings import Settings
from gpucache.store.directory import DirectoryStore
from tests.children import run_text
from tests.patience import PATIENCE_S, TIME_OUT_MS
from tests.serve import nvrtc_program
from tests.store.conftest import memos
from tests.unprivileged import needs_root

_PROGRAM = Path(__file__).with_name("nvrtc_program.py")
_SHOW = b'#include "value.h"\nextern "C" __global__ void show(int *out) { *out = VALUE; }'

_PTX = b".version 8.0\n.target sm_90\n.address_size 64\n\0"

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Run = Callable[..., tuple[str, list[dict[str, Any]]]]


@pytest.fixture(scope="session")
def installed() -> None:
    if sys.platform != "linux":
        pytest.skip("commands are intercepted on Linux")
    try:
        distribution("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    try:
        locate("nvrtc_audit")
    except NoDeviceError:
        compiler = find_compiler()
        if compiler is None:
            pytest.skip("no C compiler is here")
        build(compiler, BUILT)
        locate("nvrtc_audit")


@pytest.fixture
def command(tmp_path: Path) -> Command:

    def call(*words: object) -> "subprocess.CompletedProcess[str]":
        return run_text(
            words,
            env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "root"), TIMEOUT: TIME_OUT_MS},
            cwd=tmp_path,
        )

    return call


@pytest.fixture
def gpucache(command: Command) -> Command:
    return lambda *words: command(sys.executable, "-m", "gpucache", *words)


@pytest.fixture
def run(gpucache: Command, tmp_path: Path) -> Run:
    """The program's output under ``gpucache run``, and the report of its compiles."""

    def call(*words: object, below: Sequence[str] = ()) -> tuple[str, list[dict[str, Any]]]:
        report = tmp_path / "report.json"
        done = gpucache("run", "--report", report, "--", *below, sys.executable, _PROGRAM, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout, json.loads(report.read_text())["outcomes"]

    return call


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "words",
    [
        ("bindings", "plain"),
        *(
            pytest.param(("core", "plain"), marks=pytest.mark.slow),
            pytest.param(("bindings", "lines"), marks=pytest.mark.slow),
        ),
    ],
)
def test_a_program_is_served_what_it_would_have_compiled(
    command: Command, run: Run, words: tuple[str, ...]
) -> None:
    """It prints the same without us, at a miss and at a hit: bytes, logs, and its temporary file name."""
    bare = command(sys.executable, _PROGRAM, *words)
    assert bare.returncode == 0, bare.stderr
    for result in ("kept", "hit"):
        printed, (outcome,) = run(*words)
        assert printed == bare.stdout
        assert (outcome["result"], outcome["target"]) == (result, "cuda:sm_90")


@pytest.mark.usefixtures("installed")
def test_hits_of_the_library_are_counted_apart(gpucache: Command, tmp_path: Path) -> None:
    """Its compile at the first start is left alone and said to be a miss; its hit at the second is said."""
    compiles = "from gpucache.cuda import compile_program as go; go('__global__ void f() {}', target='sm_90')"
    counts = []
    for _ in range(2):
        done = gpucache("run", "--report", tmp_path / "report", "--", sys.executable, "-c", compiles)
        assert done.returncode == 0, done.stderr
        summary = json.loads((tmp_path / "report").read_text())["summary"]
        counts.append((summary["builds"], summary["within"], summary["missed"]))
    assert counts == [(0, 0, 1), (0, 1, 0)]


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_hit_has_the_kinds_that_the_compile_had(command: Command, run: Run) -> None:
    """With every combination of options, sizes and codes of all kinds are NVRTC's, at a miss and at a hit."""
    plain = command(sys.executable, _PROGRAM, "kinds").stdout
    missed, _ = run("kinds")
    served, outcomes = run("kinds")
    assert missed == plain
    assert served == plain
    failed = {one for one in nvrtc_program.OPTIONS if "-dlto" in one and "-optix-ir" in one}
    results = Counter(one["result"] for one in outcomes)
    assert results == {"hit": len(nvrtc_program.OPTIONS) - len(failed), "failed": len(failed)}


@pytest.mark.usefixtures("installed")
def test_a_program_that_may_write_no_file_is_served(run: Run) -> None:
    """A file size limit would kill the program at the note of a hit."""
    run("bindings", "plain")
    _, (outcome,) = run("bindings", "limited")
    assert outcome["result"] == "hit"


@pytest.mark.usefixtures("installed")
def test_a_program_whose_current_directory_is_gone_is_passed_and_told(run: Run) -> None:
    """Its relative names cannot be resolved."""
    _, (outcome,) = run("bindings", "gone")
    assert (outcome["result"], "is gone" in outcome["reason"]) == ("passed", True)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_compile_that_fails_fails_alike(command: Command, run: Run) -> None:
    """The program gets NVRTC's own message each time, and nothing is kept."""
    bare = command(sys.executable, _PROGRAM, "core", "wrong")
    for _ in range(2):
        printed, (outcome,) = run("core", "wrong")
        assert printed == bare.stdout
        assert "default_program(1): error" in printed
        assert (outcome["result"], outcome["verdict"]) == ("failed", "failed")
        assert outcome["reason"] == "it did not compile"


@pytest.mark.usefixtures("installed")
def test_a_source_under_a_name_made_up_for_each_run_is_served(run: Run) -> None:
    """cuda.core writes a source with line information to another temporary file each time."""
    (first, _), (second, (outcome,)) = run("core", "lines"), run("core", "lines")
    assert (first, outcome["result"]) == (second, "hit")


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_what_is_kept_is_an_entry_like_others(run: Run, gpucache: Command) -> None:
    """The cubin and the PTX of one compile are entries that can be listed, verified, extracted, evicted."""
    run("core", "plain")
    listed = json.loads(gpucache("--json", "inspect", "--list").stdout)["outcomes"]
    own = sorted((one["program"], one["artifact_kind"]) for one in listed if one["cache"] == "gpucache")
    assert own == [("scale", "cubin"), ("scale", "ptx")]
    sound = gpucache("verify", "--strict")
    assert (sound.returncode, "2 entries checked: no fault found" in sound.stdout) == (0, True)
    assert gpucache("evict", "--program", "scale", "--yes").returncode == 0
    _, (outcome,) = run("core", "plain")
    assert (outcome["result"], outcome["verdict"]) == ("kept", "evicted")


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_miss_is_explained(run: Run, gpucache: Command, tmp_path: Path) -> None:
    """An edited header is named, to the command's user and later by inspect."""
    header = tmp_path / "value.h"
    header.write_text("#define VALUE 7\n")
    run("core", "header", tmp_path)
    run("core", "header", tmp_path)  # for a machine so slow that the new header was not waited for
    header.write_text("#define VALUE 8\n")
    _, (outcome,) = run("core", "header", tmp_path)
    assert (outcome["result"], outcome["verdict"]) == ("kept", "key-changed")
    assert "the header value.h changed" in outcome["reason"]
    assert "the header value.h changed" in gpucache("inspect", "--misses").stdout


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_source_is_told_what_was_kept_of_it_under_run(run: Run, gpucache: Command, tmp_path: Path) -> None:
    """--why plans with the library's keys, and names the entries of the run; of these, its misses."""
    source = tmp_path / "scale.cu"
    source.write_text(nvrtc_program.SOURCE)
    _, (kept,) = run("core", "plain")
    ask = ("--json", "inspect", "--why", source, "--target", "cuda:sm_90")
    (row,) = json.loads(gpucache(*ask).stdout)["outcomes"]
    assert row["verdict"] == "key-changed"
    assert "the nearest entry is of" in row["detail"]
    assert kept["key"] in [one["key"] for one in row["under_run"]]
    assert (
        gpucache("warm", source, "--target", "cuda:sm_90", "--name-expression", "scale<int>").returncode == 0
    )
    told = gpucache(
        "inspect", "--why", source, "--target", "cuda:sm_90", "--name-expression", "scale<int>"
    ).stdout
    assert "answer:  hit" in told
    assert kept["key"][:12] in told
    assert "made under 'gpucache run'" in told
    assert "gpucache inspect --misses" in gpucache("inspect", "--why", kept["key"][:12]).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_source_that_tells_its_name_tells_its_own(
    command: Command, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source gets its own name in any form; a name made for one run is kept out of shared entries."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "tells.h").write_text(
        "#define NAME __FILE__\n"
        "__device__ constexpr const char *where() { return __FILE__; }\n"
        "__device__ constexpr const char *caller(const char *file = __builtin_FILE()) { return file; }\n"
    )
    (tmp_path / "says.h").write_text(
        '#define SAY printf("%s", __FILE__)\n__device__ inline void say() { printf("%s", __BASE_FILE__); }\n'
    )
    made_up = [tmp_path / "kern_aaaaaaa1.cu", tmp_path / "kern_zzzzzzz2.cu"]
    chosen = tmp_path / "kern_reducers.cu"
    for path in (*made_up, chosen):
        path.touch(0o600 if path in made_up else 0o644)
    for number in "12":
        (tmp_path / f"tmpfolder_{number}").mkdir(0o700)
        made_up.append(tmp_path / f"tmpfolder_{number}" / "p.cu")
    whole = ("p.cu", "sub/p.cu", "./sub/p.cu", str(tmp_path / "p.cu"), str(chosen))
    words = ("names", tmp_path, *whole, *made_up)
    bare = command(sys.executable, _PROGRAM, *words).stdout
    assert bare.count("\n") == len(nvrtc_program.FORMS) * (len(whole) + len(made_up))
    for _ in range(3):  # the second is for a machine so slow that new headers were not waited for
        printed, outcomes = run(*words)
        assert printed == bare
    results = Counter(one["result"] for one in outcomes)
    untold = {"lambda", "message", "silent", "static", "warned"}
    assert results["hit"] == len(whole) * len(nvrtc_program.FORMS) + len(made_up) * len(untold)
    assert results["kept"] == results["failed"] == 0
    assert {one["reason"].partition(",")[0] for one in outcomes if one["result"] == "passed"} == {
        "its source may use its file name"
    }


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("other", ["mounts", "group"])
def test_a_program_that_sees_other_files_is_passed(
    run: Run, gpucache: Command, tmp_path: Path, other: str
) -> None:
    """The server cannot read its headers; its compiles reach no other user and no layer.

    The index answers in the program's own process, where only the contents of files count.
    """
    for name, value in (("here", 7), ("there", 8)):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "value.h").write_text(f"#define VALUE {value}\n")
    elsewhere = {
        "mounts": ("unshare", "--mount", "sh", "-c", 'mount --bind there here && exec "$@"', "sh"),
        "group": ("setpriv", "--regid", "12345", "--keep-groups"),
    }[other]
    if subprocess.run([*elsewhere, "true"], cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("this sandbox allows no other namespace or group")
    words = ("core", "header", tmp_path / "here")
    run(*words)
    printed, (kept,) = run(*words)
    there, (passed,) = run(*words, below=elsewhere)
    answered = (
        other == "group" and passed["result"] == "hit"
    )  # by the index, which a server may not have written yet
    assert (kept["result"], passed["result"]) == ("hit", "hit" if answered else "passed"), passed["reason"]
    assert answered or "may see other files than gpucache" in passed["reason"]
    assert (there == printed) == (other == "group")
    done = gpucache("export", "layer", "out", "--", *elsewhere, sys.executable, _PROGRAM, *words)
    assert "may see other files than gpucache" in done.stderr
    assert "nothing was exported" in done.stderr


@pytest.mark.usefixtures("installed")
def test_a_compile_that_misses_fails_where_a_hit_is_required(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program sees a failed compile, and its log says why."""
    monkeypatch.setenv("GPUCACHE_REQUIRE", "1")
    printed, (outcome,) = run("core", "plain")
    assert outcome["result"] == "refused"
    assert "NVRTC_ERROR_COMPILATION" in printed
    assert "GPUCACHE_REQUIRE is set, and this build missed: scale for cuda:sm_90: never-built: " in printed
    monkeypatch.delenv("GPUCACHE_REQUIRE")
    run("core", "plain")
    monkeypatch.setenv("GPUCACHE_REQUIRE", "1")
    assert [one["result"] for one in run("core", "plain")[1]] == ["hit"]


@pytest.mark.usefixtures("installed")
def test_the_library_is_not_served_twice(run: Run) -> None:
    """gpucache's own library has already looked up its compiles."""
    _, outcomes = run("library")
    assert outcomes == []


class _Program:
    """A program's side of the wire, in this process, with real artifacts."""

    def __init__(self, root: Path, cwd: Path, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
        settings = Settings(root=root, root_origin="test")
        self.serving = NVRTCServing(open_stores(settings, command="test"))
        self._options = ("-arch=sm_90", f"-I{cwd}")
        self._cwd, self._headers = cwd, headers
        library, _ = nvrtc.nvrtc_libraries(nvrtc.version())
        self._version, self._library = ".".join(map(str, nvrtc.version())), str(library)

    def ask(self, *, source: bytes = _SHOW, name: str = "show.cu") -> tuple[Kind, tuple[bytes, ...]]:
        reply = self.serving.handlers[Kind.COMPILE](self.request(source=source, name=name))
        return reply.kind, reply.fields

    def request(self, *, source: bytes = _SHOW, name: str = "show.cu") -> Fields:
        texts = (self._version, self._library, name)
        headers = [part for header, text in self._headers for part in (header.encode(), text)]
        options = [option.encode() for option in self._options]
        counts = [str(len(one)).encode() for one in (self._headers, options)]
        fields = [
            files_seen().encode(),
            os.fsencode(self._cwd),
            b"HOME=/nowhere\0TMPDIR=%s\0" % os.fsencode(self._cwd),
            *(text.encode() for text in texts),
            source,
        ]
        return Fields((*fields, counts[0], *headers, counts[1], *options, b"0"))

    def compile(self) -> bytes:
        request = request_as_asked(
            _SHOW,
            "show.cu",
            self._options,
            version=nvrtc.version(),
            cwd=str(self._cwd),
            headers=self._headers,
        )
        assert request.artifact_kind is ArtifactKind.CUBIN
        return BACKEND.compile(request, BACKEND.plan(request, nvrtc.toolchain(request.target), {})).payload

    def tell(self, token: bytes, cubin: bytes, log: bytes = b"", **others: bytes) -> Intercepted:
        self.told(token, cubin, log, **others)()
        return self.serving.finish()[-1]

    def told(self, token: bytes, cubin: bytes, log: bytes = b"", **others: bytes) -> Callable[[], None]:
        """Report a compile, and return the work that follows the reply."""
        given = {"cubin": cubin, "ptx": _PTX, **others}
        artifacts = [(kind.encode(), payload) for kind, payload in given.items() if payload]
        told = (
            token,
            b"0",
            b"1000",
            log,
            b"%d" % len(artifacts),
            *(one for part in artifacts for one in part),
        )
        reply = self.serving.handlers[Kind.COMPILED](Fields((*told, b"0")))
        assert reply.then is not None
        return reply.then


@pytest.fixture
def program(tmp_path: Path) -> _Program:
    if sys.platform == "darwin":
        pytest.skip("there is no NVRTC for macOS")
    (tmp_path / "value.h").write_text("#define VALUE 7\n")
    return _Program(tmp_path / "root", tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_compile_is_kept_and_found(program: _Program, tmp_path: Path) -> None:
    """The second request is answered with the cubin and the log of the first."""
    kind, (token, wanted) = program.ask()
    assert (kind, wanted) == (Kind.MISS, b"2")
    cubin = program.compile()
    assert program.tell(token, cubin, b"said\xff\0twice").result is RunResult.KEPT
    again = _Program(tmp_path / "root", tmp_path)
    artifacts = (b"2", b"cubin", cubin, b"ptx", _PTX)
    kind, (_, *answer) = again.ask()
    assert (kind, answer) == (Kind.HIT, [b"said\xff\0twice", *artifacts, b"0"])


@pytest.mark.usefixtures("installed")
def test_rows_are_written_together_and_at_a_hit(program: _Program, tmp_path: Path) -> None:
    """So a command of many builds writes their file seldom; its end writes the last ones."""
    cubin, rows = program.compile(), DirectoryStore(tmp_path / "root", writable=False).rows

    def keep(numbers: range) -> None:
        for number in numbers:
            program.told(program.ask(source=_SHOW + b"// %d\n" % number)[1][0], cubin)()

    def count() -> int:
        return sum(True for _ in rows.each())

    keep(range(15))
    assert count() == 0
    keep(range(15, 17))
    assert count() == 16
    found = program.serving.handlers[Kind.COMPILE](program.request(source=_SHOW + b"// 16\n"))
    assert found.kind is Kind.HIT and found.then is not None
    found.then()
    assert count() == 17
    keep(range(17, 19))
    program.serving.finish()
    assert count() == 19


@pytest.mark.usefixtures("installed")
def test_no_row_is_written_of_an_entry_that_was_evicted_meanwhile(program: _Program, tmp_path: Path) -> None:
    """An eviction removes the rows of its entries, and cannot see one that waits for others."""
    program.told(program.ask()[1][0], program.compile())()
    store = DirectoryStore(tmp_path / "root", writable=True)
    assert len(list(store.remove_together([*store.scan()], "--all"))) == 2
    program.serving.finish()
    assert list(store.rows.each()) == []


@pytest.mark.usefixtures("installed")
def test_a_compile_that_is_kept_is_used_by_its_first_hit(program: _Program, tmp_path: Path) -> None:
    """To store it, and to write its row of the index, is not a use."""
    program.tell(program.ask()[1][0], program.compile())
    store = DirectoryStore(tmp_path / "root", writable=False)

    def used() -> set[bool]:
        return {one.identity.mtime_ns != one.head.created_ns for one in store.scan() if one.head}

    assert used() == {False}
    assert _Program(tmp_path / "root", tmp_path).ask()[0] is Kind.HIT
    assert used() == {True}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("gone", ["cubin", "ptx"])
def test_a_hit_has_all_kinds_or_is_none(program: _Program, tmp_path: Path, gone: str) -> None:
    """If one entry of a compile is gone the next one is a miss that says so, and all are stored again."""
    root = tmp_path / "root"
    cubin = program.compile()
    program.tell(program.ask()[1][0], cubin)
    store = DirectoryStore(root, writable=True)
    going = [one for one in store.scan() if one.head is not None and one.head.artifact_kind == gone]
    assert len(list(store.remove_together(going, "--all"))) == 1
    again = _Program(root, tmp_path)
    kind, (token, wanted) = again.ask()
    assert (kind, wanted) == (Kind.MISS, b"2")
    outcome = again.tell(token, cubin)
    assert (outcome.result, outcome.verdict) == (RunResult.KEPT, Verdict.EVICTED)
    assert _Program(root, tmp_path).ask()[0] is Kind.HIT


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("kind", "payload", "made"), [("ptx", b"", "cubin"), ("ltoir", b"more", "cubin, ltoir, ptx")]
)
def test_nothing_is_kept_of_a_compile_with_other_kinds(
    program: _Program, tmp_path: Path, kind: str, payload: bytes, made: str
) -> None:
    """A hit has all kinds that the compile gave; which these are is known before the compile."""
    outcome = program.tell(program.ask()[1][0], program.compile(), **{kind: payload})
    assert outcome.result is RunResult.LEFT
    assert f"the compiler returned {made} where gpucache knows cubin, ptx" in outcome.reason
    assert not list((tmp_path / "root").rglob("*.gpc"))


@pytest.mark.usefixtures("installed")
def test_why_nothing_is_kept_is_told(program: _Program) -> None:
    """Artifacts that were not requested are not a reason."""
    kind, (token, wanted) = program.ask(source=b"// __TIME__\n__device__ const char *when = __TIME__;")
    assert (kind, wanted) == (Kind.MISS, b"0")
    outcome = program.tell(token, b"", ptx=b"")
    assert (outcome.result, "uses __TIME__" in outcome.reason) == (RunResult.LEFT, True)


@pytest.mark.usefixtures("installed")
def test_what_an_older_gpucache_kept_is_told(tmp_path: Path) -> None:
    """Its keys lacked the name of the source: the miss after an upgrade says so, and that it happens once."""
    stores = open_stores(Settings(root=tmp_path / "root", root_origin="test"), command="test")
    source = b'extern "C" __global__ void show(int *out) { *out = 7; }'
    request = request_as_asked(source, "a/show.cu", ("-arch=sm_90",), version=nvrtc.version(), cwd="/")
    now = prepare(BACKEND, request, nvrtc.toolchain(request.target), {})
    fields = tuple(field for field in now.fields if field.label != SOURCE_NAME)
    before = now._replace(fields=fields, key=cache_key(fields))
    assert stores.target is not None
    publish(
        stores,
        stores.target,
        before,
        BACKEND.compile(request, now.compilation),
        Miss(Verdict.NEVER_BUILT, ""),
        None,
    )
    miss = explain(stores, now, NoEntry())
    assert miss.verdict is Verdict.KEY_CHANGED
    assert "an older gpucache" in miss.detail
    assert "compiled once more" in miss.detail


@pytest.mark.usefixtures("installed")
def test_a_header_that_changes_while_it_is_compiled(program: _Program, tmp_path: Path) -> None:
    """It is unknown which version was compiled, so nothing is kept."""
    _, (token, _) = program.ask()
    cubin = program.compile()
    (tmp_path / "value.h").write_text("#define VALUE 8\n")
    outcome = program.tell(token, cubin)
    assert outcome.result is RunResult.LEFT
    assert "value.h changed while it was compiled" in outcome.reason


@pytest.mark.usefixtures("installed")
def test_headers_may_be_removed_as_soon_as_the_program_has_its_reply(
    program: _Program, tmp_path: Path
) -> None:
    """They were read again before, and a program without headers need not wait for that."""
    _, (token, wanted) = program.ask()
    follow = program.told(token, program.compile())
    (tmp_path / "value.h").unlink()
    follow()
    assert (wanted, program.serving.finish()[-1].result) == (b"2", RunResult.KEPT)
    _, (_, wanted) = program.ask(source=b"__global__ void without_headers() {}")
    assert wanted == b"1"


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("whole", ["", "folder"])
def test_a_program_that_removes_its_headers_is_kept(run: Run, tmp_path: Path, whole: str) -> None:
    """It writes them for one compile, and removes them, or their directory too, when that returns."""
    for result in ("kept", "hit"):
        folder = tmp_path / f"headers of {result}"
        folder.mkdir()
        (folder / "value.h").write_text("#define VALUE 7\n")
        _, (outcome,) = run("core", "removed", folder, whole)
        assert outcome["result"] == result
        assert folder.exists() is not bool(whole)


@pytest.mark.usefixtures("installed")
def test_a_source_whose_headers_take_too_long_is_passed(
    program: _Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read to their end, so that the next run finds them in memos."""
    answered, prepared = Event(), Event()

    def prepare_later(call: Call, memos: Any) -> Prepared:
        assert answered.wait(PATIENCE_S)
        try:
            return prepare_call(call, memos)
        finally:
            prepared.set()

    monkeypatch.setattr(serve_nvrtc, "prepare_call", prepare_later)
    monkeypatch.setenv(TIMEOUT, "10")
    assert program.ask() == (Kind.PASS, (b"",))
    answered.set()
    assert prepared.wait(PATIENCE_S)
    (outcome,) = program.serving.finish()
    assert (outcome.result, "took too long" in outcome.reason) == (RunResult.PASSED, True)


@pytest.mark.usefixtures("installed")
def test_a_key_is_locked_until_its_entry_is_published(program: _Program, tmp_path: Path) -> None:
    """Another request for the same key, also below another run, waits and hits."""
    other, store = _Program(tmp_path / "root", tmp_path), DirectoryStore(tmp_path / "root", writable=True)
    _, (token, _) = program.ask()
    (one,) = program.serving.builds.values()
    with store.single_flight(one.prepared[0].key, 0) as alone:
        assert not alone
    with ThreadPoolExecutor() as threads:
        second = threads.submit(other.ask)
        assert program.tell(token, program.compile()).result is RunResult.KEPT
        assert second.result()[0] is Kind.HIT
    with store.single_flight(one.prepared[0].key, 0) as alone:
        assert alone


@pytest.mark.usefixtures("installed")
def test_a_program_waits_for_nothing_that_follows_its_compile(tmp_path: Path) -> None:
    """An artifact is read and stored after the program went on, even after it ended."""
    ended, heard = Event(), []

    def compiled(fields: Fields) -> Reply:
        assert ended.wait(PATIENCE_S)
        heard.append(fields.take())
        return HEARD

    tokens = count(1)
    handlers = {
        Kind.COMPILE: lambda _: Reply(Kind.MISS, (b"%d" % next(tokens), b"1")),
        Kind.COMPILED: compiled,
    }
    with serve(handlers) as path:
        environ = intercepted(os.environ, str(path), Libraries(audit=str(locate("nvrtc_audit"))))
        done = subprocess.run(
            [sys.executable, str(_PROGRAM), "names", str(tmp_path), "a.cu"],
            env=environ,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        ended.set()
    assert len(heard) == len(done.stdout.splitlines()) == len(nvrtc_program.FORMS)


@pytest.mark.usefixtures("installed")
def test_a_source_that_is_asked_for_pushes_no_closure_out(program: _Program, tmp_path: Path) -> None:
    """The bounded directory of memos gets no file for a source with few headers."""
    program.ask()
    assert not memos(tmp_path / "root")


@pytest.mark.usefixtures("installed")
def test_a_log_that_is_too_long_is_not_kept(program: _Program) -> None:
    """An entry would truncate it, and the program would get less than before."""
    _, (token, _) = program.ask()
    outcome = program.tell(token, program.compile(), b"x" * 70_000)
    assert outcome.result is RunResult.LEFT
    assert "longer than an entry can contain" in outcome.reason


@pytest.mark.usefixtures("installed")
def test_what_is_no_cubin_is_not_kept(program: _Program) -> None:
    """A payload is checked, whatever its declared kind."""
    _, (token, _) = program.ask()
    assert program.tell(token, b"no cubin").result is RunResult.LEFT


@pytest.mark.usefixtures("installed")
def test_a_compile_whose_process_ended_is_told(program: _Program) -> None:
    """A process that ended before it reported a result still has an outcome."""
    assert program.ask()[0] is Kind.MISS
    (left,) = program.serving.finish()
    assert (left.result, left.reason) == (RunResult.LEFT, "its process ended before the build did")


@pytest.mark.usefixtures("installed")
def test_a_compile_that_is_still_being_kept_at_the_end_is_told_once(program: _Program) -> None:
    """The end waits a while for the stores; a slower one still has an outcome."""
    _, (token, _) = program.ask()
    follow = program.told(token, program.compile())
    (left,) = program.serving.finish()
    assert (left.result, left.reason) == (
        RunResult.LEFT,
        "the command had ended, and keeping it took too long",
    )
    follow()
    assert program.serving.finish() == (left,)


@pytest.mark.usefixtures("installed")
def test_a_compile_whose_keeping_fails_is_told(program: _Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure after a reply loses no outcome of a build."""

    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("no memory is left")

    _, (token, _) = program.ask()
    follow = program.told(token, program.compile())
    monkeypatch.setattr(program.serving, "publish", fail)
    with pytest.raises(RuntimeError):
        follow()
    (left,) = program.serving.finish()
    assert (left.result, left.reason) == (RunResult.LEFT, "it could not be kept: no memory is left")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("source", [b"int a = __TIME__[0];", b'#include MACRO\n#define MACRO __TIME__ ".h"'])
def test_what_cannot_be_keyed_is_not_asked_for(program: _Program, source: bytes) -> None:
    """The command compiles it, and sends no result."""
    kind, (_, wanted) = program.ask(source=source)
    assert (kind, wanted) == (Kind.MISS, b"0")


@pytest.mark.usefixtures("installed")
def test_what_may_lie_beside_a_made_up_folder_is_not_asked_for(program: _Program, tmp_path: Path) -> None:
    """The stand-in directory has to be empty, so that no header is found relative to it."""
    name = tempfile.mkdtemp(prefix="tmp", dir=tmp_path) + "/kern.cu"
    kind, (_, wanted) = program.ask(name=name)
    assert (kind, wanted) == (Kind.MISS, b"2")
    assert program.ask(name=name, source=b'#include "../value.h"\n' + _SHOW)[0] is Kind.PASS
    (tmp_path / "tmpgpucache").mkdir()
    (tmp_path / "tmpgpucache" / "value.h").touch()
    assert program.ask(name=name)[0] is Kind.PASS


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("app_scale_ab12_xyz.cu", "app_scale_gpucache.cu"),
        ("tmpab12_xyz.cu", "tmpgpucache.cu"),
        ("tmpab12_xyz/kern.cu", "tmpgpucache/kern.cu"),
        ("kernels.cu", "kernels.cu"),
    ],
)
def test_what_a_name_has_of_its_run_is_replaced(tmp_path: Path, given: str, kept: str) -> None:
    """Exactly the characters that Python's tempfile module makes up."""
    path = tmp_path / given
    path.parent.mkdir(0o700, exist_ok=True)
    path.touch(0o600)
    name = read_name(str(path), {"TMPDIR": str(tmp_path)})
    assert name.kept == str(tmp_path / kept)
    assert name.to_give(name.to_keep(os.fsencode(path))) == os.fsencode(path)


@pytest.mark.parametrize(
    ("given", "made_up"), [("tmpab12_xyz/kern.cu", True), ("app_reducers/kern.cu", False)]
)
def test_a_folder_that_is_gone_was_made_up_if_it_has_the_modules_own_prefix(
    tmp_path: Path, given: str, *, made_up: bool
) -> None:
    """CuPy compiles after it has left its temporary directory."""
    assert (read_name(str(tmp_path / given), {"TMPDIR": str(tmp_path)}).stems is not None) == made_up


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_name_that_looks_made_up_counts_as_it_is(tmp_path: Path, mode: int | None) -> None:
    """A file like one of Python's tempfile counts by its name unless it is private and exists."""
    path = tmp_path / "kern_reducers.cu"
    if mode is not None:
        path.touch(mode)
    name = read_name(str(path), {"TMPDIR": str(tmp_path)})
    assert (name.kept, name.stems) == (str(path), None)


def test_a_temporary_folder_of_headers_is_no_made_up_name(tmp_path: Path) -> None:
    """Headers next to the source are included from there, so the directory counts."""
    folder = tmp_path / "tmpab12_xyz"
    folder.mkdir(0o700)
    given = str(folder / "kern.cu")
    assert read_name(given, {"TMPDIR": str(tmp_path)}).kept == str(tmp_path / "tmpgpucache" / "kern.cu")
    (folder / "value.h").touch()
    assert read_name(given, {"TMPDIR": str(tmp_path)}).kept == given


def test_a_made_up_name_that_is_in_the_source_too(tmp_path: Path) -> None:
    """An occurrence of the name in the artifact may come from the source."""
    path = tmp_path / "app_kernel01.cu"
    path.touch(0o600)
    name = read_name(str(path), {"TMPDIR": str(tmp_path)})
    assert name.is_in([b"void app_kernel01() {}"])
    assert not name.is_in([b"void kernel01() {}"])
