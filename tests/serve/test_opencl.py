"""The server's replies and stored entries, for requests like those of the library inside a command."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gpucache.answers.lookup import Miss, Noted, Verdict
from gpucache.answers.run import Intercepted, RunResult
from gpucache.assembly import open_stores
from gpucache.engine.stores import Stores
from gpucache.errors import TargetError
from gpucache.host.file_stamps import files_seen
from gpucache.keys import Difference
from gpucache.model import Device
from gpucache.probe.ask import ask as probe
from gpucache.probe.remembered import recalled
from gpucache.serve.devices import Devices, Facts
from gpucache.serve.environment import Libraries
from gpucache.serve.opencl import OpenCLServing
from gpucache.serve.server import serve
from gpucache.serve.wire import Frame, Kind, number
from gpucache.settings import Settings
from gpucache.store.interface import MissedRequest
from gpucache.store.missed import Missed
from tests.patience import PATIENCE_S, tick, wait_until
from tests.serve.client import ask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")
SOURCE = b"kernel void scale(global float *a) { a[0] *= 2; }\n"
BINARY = b"as a vendor likes it " * 8
_LABELS = (
    *("platform name", "platform vendor", "platform version"),
    *("device name", "device vendor", "device version", "driver version"),
)


@pytest.fixture(scope="session")
def rows(icd_vendors: Path) -> Sequence[Device]:
    """The result of a real probe on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCL_ICD_VENDORS", str(icd_vendors))
        return probe(["opencl"])


def _row(rows: Sequence[Device], implementation: str) -> Device:
    for row in rows:
        if row.toolchain is not None and row.toolchain.implementation == implementation:
            return row
    pytest.skip(f"no device of {implementation} is here")


def _facts(row: Device) -> list[bytes]:
    assert row.toolchain is not None
    fields = dict(row.toolchain.fields)
    return [row.files[0].encode(), *(fields[label].encode() for label in _LABELS)]


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return open_stores(Settings(tmp_path / "root", "--root"), command="app")


class Command:
    """A command and its server."""

    def __init__(
        self, stores: Stores, rows: Sequence[Device], ends: ExitStack, devices: Devices | None = None
    ) -> None:
        self._rows = rows
        self.files_seen = files_seen()
        self.environ = b""
        self.serving = OpenCLServing(stores, devices or Devices(probe=lambda: rows), Libraries())
        self._ends = ends
        self.path = ends.enter_context(serve(self.serving.handlers))

    def build(
        self,
        *,
        device: str = "intel",
        options: str = "",
        driver: str = "",
        source: bytes = SOURCE,
        kind: Kind = Kind.BUILD,
    ) -> Frame:
        """Request a build in an environment, which is empty; ``driver`` replaces the driver's version."""
        told = _facts(_row(self._rows, device))
        told[-1] = driver.encode() or told[-1]
        fields = (
            self.files_seen.encode(),
            os.fsencode(Path.cwd()),
            self.environ,
            options.encode(),
            source,
            b"1",
            *told,
        )
        return ask(self.path, kind, *fields)

    def part(self, source: bytes = SOURCE, **asked: Any) -> bytes:
        """The mark of a part that is compiled."""
        token, _ = self.build(source=source, kind=Kind.PART, **asked).fields
        [mark] = ask(self.path, Kind.PART_COMPILED, token).fields
        return mark

    def link(self, *marks: bytes, **asked: Any) -> Frame:
        return self.build(source=b"".join(mark + b"\n" for mark in marks), kind=Kind.LINK, **asked)

    def built(self, token: bytes, binary: bytes = BINARY, code: int = 0) -> Frame:
        """Report the end of a build after a second."""
        return ask(self.path, Kind.BUILT, token, number(code), number(10**9), binary, b"a log\0")

    def launched(self, token: bytes, *sizes: str) -> None:
        """Note local sizes as the file of a run has them, which is read at its end."""
        self.serving.note_launches(token + b" " + size.encode() for size in sizes)

    def end(self) -> Sequence[Intercepted]:
        self._ends.close()
        return self.serving.finish()


@pytest.fixture
def start(stores: Stores, rows: Sequence[Device]) -> Iterator[Callable[[], Command]]:
    with ExitStack() as ends:
        yield lambda: Command(stores, rows, ends)


@pytest.fixture
def command(start: Callable[[], Command]) -> Command:
    return start()


def _entries(stores: Stores) -> int:
    assert stores.user is not None
    return sum(1 for _ in (stores.user.root / "v1" / "entries").rglob("*.gpc"))


def test_a_binary_is_kept_and_served_with_its_log(command: Command) -> None:
    """A build that follows at once waits until the one before is published."""
    missed = command.build()
    assert (missed.kind, missed.fields[1:]) == (Kind.MISS, (b"1",))
    assert command.built(missed.fields[0]).kind == Kind.OK
    hit = command.build()
    assert (hit.kind, hit.fields[1:]) == (Kind.HIT, (BINARY, b"a log"))
    assert command.built(hit.fields[0], b"") == Frame(Kind.OK)
    kept, served = sorted(command.end(), key=lambda one: one.saved_ns)
    assert (kept.result, kept.verdict) == (RunResult.KEPT, Verdict.NEVER_BUILT)
    assert (served.result, served.key, served.saved_ns) == (RunResult.HIT, kept.key, 10**9)
    # The command's wait is not the driver's compile time.
    assert all(0 < one.build_ns < 10**12 for one in (kept, served)) and kept.build_ns != 10**9


@pytest.mark.parametrize(
    ("seen", "why"), [("", "cannot determine which files"), ("0:1:2", "may see other files")]
)
def test_a_process_that_sees_other_files_is_passed(command: Command, seen: str, why: str) -> None:
    """Stored entries are not served to it, and its builds are not stored."""
    command.built(command.build().fields[0])
    command.files_seen = seen
    passed = command.build()
    assert passed.kind == Kind.PASS
    command.built(passed.fields[0])
    (told,) = (one for one in command.end() if one.result is not RunResult.KEPT)
    assert (told.result, why in told.reason) == (RunResult.PASSED, True)


def test_what_a_driver_refuses_is_replaced(command: Command) -> None:
    """The command sends a new binary as after any miss, and the next build gets it."""
    command.built(command.build().fields[0])
    hit = command.build()
    refused = ask(command.path, Kind.REJECTED, hit.fields[0], number(-42))
    assert refused == Frame(Kind.MISS, (hit.fields[0], b"1"))
    command.built(hit.fields[0], BINARY + b"better")
    assert command.build().fields[1] == BINARY + b"better"
    rejected = next(one for one in command.end() if one.verdict is Verdict.REJECTED)
    assert (rejected.result, rejected.saved_ns) == (RunResult.KEPT, 0)
    assert rejected.reason == "the driver refused the binary with -42"


def test_what_a_driver_refuses_is_gone_where_nothing_replaces_it(command: Command, stores: Stores) -> None:
    """Otherwise it would be refused in every run."""
    command.built(command.build().fields[0])
    hit = command.build()
    ask(command.path, Kind.REJECTED, hit.fields[0], number(-42))
    command.built(hit.fields[0], b"")
    command.end()
    assert _entries(stores) == 0


def test_a_late_compiler_is_not_asked_for_binaries(command: Command, stores: Stores) -> None:
    """The request is noted at once, and the launched sizes at the end."""
    missed = command.build(device="pocl")
    assert missed.fields[1:] == (b"0",)
    command.built(missed.fields[0], b"")
    command.launched(missed.fields[0], "8,8,1", "64")
    (noted,) = command.end()
    assert (noted.result, _entries(stores)) == (RunResult.NOTED, 0)
    assert stores.target is not None
    (request,) = stores.target.missed.all()
    assert (request.request.local_sizes, request.command) == (((8, 8, 1), (64,)), "app")


def test_a_device_that_is_not_seen_is_passed(command: Command) -> None:
    """Its time counts, and the reason is reported; nothing of it is stored."""
    passed = command.build(driver="1.2.3")
    assert passed.kind == Kind.PASS and passed.fields[0]
    assert command.built(passed.fields[0], b"").kind == Kind.OK
    (one,) = command.end()
    assert (one.result, one.build_ns > 0) == (RunResult.PASSED, True)
    assert "its driver is not seen by 'gpucache devices'" in one.reason


class Late:
    """A command whose devices are known only after its request for a build."""

    def __init__(self, stores: Stores, rows: Sequence[Device], ends: ExitStack) -> None:
        self._known = Event()
        self._rows = rows
        self.devices = Devices(probe=self._probe, wait_s=0.001)
        self.command = Command(stores, rows, ends, self.devices)

    def _probe(self) -> Sequence[Device]:
        assert self._known.wait(PATIENCE_S)
        return self._rows

    def end_probe(self) -> None:
        self._known.set()
        facts = _told(_row(self._rows, "intel"))

        def knows() -> bool:
            with suppress(TargetError):
                return bool(self.devices.files(facts))
            return False

        wait_until(knows)


@pytest.fixture
def late(stores: Stores, rows: Sequence[Device]) -> Iterator[Late]:
    """A command that is faster than its probe."""
    with ExitStack() as ends:
        yield Late(stores, rows, ends)


@pytest.mark.parametrize("device", ["intel", "pocl"])
def test_a_build_that_outlasts_the_probe_is_kept_by_the_first_run(
    late: Late, stores: Stores, device: str
) -> None:
    """It is looked up when it ends, as its devices are known then; a late compiler's is noted."""
    missed = late.command.build(device=device)
    assert (missed.kind, missed.fields[1:]) == (Kind.MISS, (b"1",))
    late.end_probe()
    late.command.built(missed.fields[0])
    (one,) = late.command.end()
    assert one.result is (RunResult.KEPT if device == "intel" else RunResult.NOTED)
    assert (one.verdict, _entries(stores)) == (Verdict.NEVER_BUILT, int(device == "intel"))


def test_a_probe_that_was_too_late_is_remembered_at_the_end(stores: Stores, rows: Sequence[Device]) -> None:
    """Else each run of a command that is faster than its probe says that the next one knows the devices."""
    asked = Event()

    def probe() -> Sequence[Device]:
        assert asked.wait(PATIENCE_S)
        return rows

    with ExitStack() as ends, ThreadPoolExecutor(1) as pool:
        command = Command(stores, rows, ends, Devices(stores, probe, wait_s=0))
        command.build()
        ended = pool.submit(command.end)
        asked.set()
        assert [one.result for one in ended.result()] == [RunResult.PASSED]
    assert recalled(stores, "opencl")


def test_a_launch_that_is_earlier_than_the_devices_is_noted_with_its_size(
    late: Late, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is learned lacks the size, and each later run is told to learn it."""
    token, _ = late.command.build(device="pocl").fields
    monkeypatch.setattr(late.devices, "_wait_s", PATIENCE_S)
    late.command.built(token)
    late.command.launched(token, "64")
    late.end_probe()
    late.command.end()
    assert stores.target is not None
    (request,) = stores.target.missed.all()
    assert request.request.local_sizes == ((64,),)


def test_headers_that_its_program_was_not_asked_about_are_not_believed(
    late: Late, stores: Stores, tmp_path: Path
) -> None:
    """If devices were known too late, the compiler may have read other headers than we did."""
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    missed = late.command.build(options=f"-I{tmp_path}", source=b'#include "value.h"\n' + SOURCE)
    late.end_probe()
    late.command.built(missed.fields[0])
    (one,) = late.command.end()
    assert (one.result, _entries(stores)) == (RunResult.LEFT, 0)
    assert "too late to ask which headers its process sees" in one.reason


def test_a_compiler_that_changes_before_its_devices_are_known_keeps_nothing(
    stores: Stores, rows: Sequence[Device], tmp_path: Path
) -> None:
    """The program may have loaded what was there before."""
    file = tmp_path / "libcompiler.so"
    file.write_bytes(b"old")
    with ExitStack() as ends:
        late = Late(stores, [row._replace(files=(*row.files, str(file))) for row in rows], ends)
        missed = late.command.build()
        file.write_bytes(b"new")
        late.end_probe()
        late.command.built(missed.fields[0])
        (one,) = late.command.end()
    assert (one.result, _entries(stores)) == (RunResult.PASSED, 0)
    assert f"{file} has changed since the command began" in one.reason


def test_parts_that_are_never_compiled_are_forgotten(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of too many is passed; a mark of an older layer, without a name, still gets a reply."""
    monkeypatch.setattr("gpucache.serve.opencl._COMPILING_CAP", 2)
    tokens = [command.build(source=SOURCE, kind=Kind.PART).fields[0] for _ in range(3)]
    replies = [ask(command.path, Kind.PART_COMPILED, token) for token in tokens]
    assert [one.kind for one in replies] == [Kind.PASS, Kind.HIT, Kind.HIT]
    missed = command.link(replies[-1].fields[0].partition(b"\t")[0])
    assert missed.kind == Kind.MISS
    command.built(missed.fields[0], b"")
    told = [one.reason for one in command.end() if one.result is RunResult.LEFT]
    assert len(told) == 1 and "or a part was compiled again during the link" in told[0]


def test_an_option_that_no_key_covers_is_passed(command: Command) -> None:
    """The driver handles the option by itself."""
    assert command.build(options="-save-temps").kind == Kind.PASS
    (one,) = command.end()
    assert (one.result, "-save-temps" in one.reason) == (RunResult.PASSED, True)


def test_what_binaries_cannot_answer_is_not_kept(command: Command) -> None:
    """No binary is requested, and the reason is reported."""
    missed = command.build(options="-cl-kernel-arg-info")
    assert missed.fields[1:] == (b"0",)
    command.built(missed.fields[0], b"")
    (one,) = command.end()
    assert (one.result, one.verdict) == (RunResult.LEFT, Verdict.UNCACHEABLE)


def test_garbage_is_not_kept(command: Command, stores: Stores) -> None:
    """A driver's binary is checked before it is stored."""
    command.built(command.build().fields[0], b"\x7fELF cut off")
    (one,) = command.end()
    assert (one.result, _entries(stores)) == (RunResult.LEFT, 0)
    assert one.reason.startswith("the compiler's result is damaged")


def test_a_build_that_failed_is_a_miss_and_keeps_nothing(command: Command, stores: Stores) -> None:
    """Its error is the program's own, and no build in vain is called for."""
    command.built(command.build().fields[0], b"", code=-11)
    (one,) = command.end()
    assert (one.result, one.verdict, _entries(stores)) == (RunResult.FAILED, Verdict.FAILED, 0)
    assert stores.user is not None
    (line,) = (one for one in stores.user.journal_tail(9) if one["kind"] == "miss")
    assert (line["verdict"], line["detail"]) == ("failed", "it did not compile")


def test_the_change_that_did_not_compile_is_told() -> None:
    """The field that differs from the last build is the likely cause."""
    changed = Miss(Verdict.KEY_CHANGED, "the define N: 1 -> x", (Difference("option", "-DN=1", "-DN=x"),))
    why = "it did not compile; key-changed: the define N: 1 -> x"
    assert changed.failed() == changed._replace(verdict=Verdict.FAILED, detail=why)


def test_a_build_that_never_ended_is_a_miss(command: Command) -> None:
    """Its process was killed, or stopped reporting."""
    command.build()
    (one,) = command.end()
    assert (one.result, one.reason) == (RunResult.LEFT, "its process ended before the build did")


def test_what_no_frame_holds_is_no_hit(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry too large for a frame is compiled by the program, and the reason is reported."""
    large = BINARY * 1000
    command.built(command.build().fields[0], large)
    assert command.build().kind == Kind.HIT
    monkeypatch.setattr("gpucache.serve.wire.FRAME_BYTES_CAP", len(large))
    passed = command.build()
    assert passed.kind == Kind.PASS
    command.built(passed.fields[0], b"")
    (one,) = (each for each in command.end() if each.result is RunResult.PASSED)
    assert one.saved_ns == 0 and "larger than the 256 MiB" in one.reason


@pytest.mark.parametrize("kind", [Kind.BUILT, Kind.REJECTED])
def test_a_token_that_nobody_has_is_passed(command: Command, kind: Kind) -> None:
    """A request with an unknown token, meant for another server, does no harm."""
    assert ask(command.path, kind, b"999", b"0", b"0").kind == Kind.PASS
    assert command.end() == ()


def test_what_is_no_local_size_is_passed_over(command: Command, stores: Stores) -> None:
    """It is not stored, and neither is one of a token that nobody has."""
    token = command.build(device="pocl").fields[0]
    command.built(token, b"")
    command.launched(token, "8,x", "1,2,3,4", "-1", "\u0665", "", "8 8")
    command.launched(b"999", "64")
    command.end()
    assert stores.target is not None
    assert [one.request.local_sizes for one in stores.target.missed.all()] == [()]


def test_a_build_that_is_settled_after_the_commands_end_has_its_sizes(
    command: Command, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is learned lacks them, and the next run says that it is to be learned again."""
    begun, ended, note = Event(), Event(), Missed.note

    def late(missed: Missed, request: MissedRequest) -> Noted:
        begun.set()
        ended.wait(PATIENCE_S)
        return note(missed, request)

    monkeypatch.setattr(Missed, "note", late)
    token = command.build(device="pocl").fields[0]
    command.built(token, b"")
    assert begun.wait(PATIENCE_S)
    command.launched(token, "64")
    (left,) = command.serving.finish()
    ended.set()
    command.end()
    assert left.result is RunResult.LEFT and stores.target is not None
    assert [one.request.local_sizes for one in stores.target.missed.all()] == [((64,),)]


def test_a_call_that_is_not_served_is_told(command: Command) -> None:
    """An unserved call is reported; clCreateProgramWithBinary is not a build at all."""
    ask(command.path, Kind.OTHER, b"1", b"clCreateProgramWithBinary", b"", b"")
    ask(command.path, Kind.OTHER, b"1", b"clCompileProgram", b"-DX", b"source")
    (one,) = command.end()
    assert (one.result, one.reason) == (RunResult.PASSED, "clCompileProgram is not served")


def test_a_link_is_known_by_its_parts_and_its_options(start: Callable[[], Command]) -> None:
    """The parts, their order and their repetitions all count."""
    command = start()
    one, other = command.part(), command.part(SOURCE + b"// other\n")
    assert (command.part() == one, one == other) == (True, False)
    command.built(command.link(one, other).fields[0])
    assert command.link(one, other).fields[1:] == (BINARY, b"a log")
    asked = (command.link(other, one), command.link(one), command.link(one, one, other))
    optional = command.link(one, other, options="-cl-denorms-are-zero")
    assert {reply.kind for reply in (*asked, optional)} == {Kind.MISS}
    assert [one.program for one in command.end()] == ["scale"] * 6


def test_a_mark_has_all_that_its_object_depends_on(command: Command, tmp_path: Path) -> None:
    """Source, options and driver; and the places of headers, which objects may contain."""
    marks = [
        command.part(),
        command.part(options="-DN=1"),
        command.part(options="-DN=2"),
        command.part(b"//\n"),
    ]
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        (folder / "it.h").touch()
        marks.append(command.part(b"#include <it.h>\n", options=f"-I{folder}"))
    assert len(set(marks)) == len(marks)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda _: None, Kind.HIT),
        (lambda header: header.write_text("2"), Kind.PASS),
        (lambda header: (header.write_text("2"), header.write_text("1")), Kind.PASS),
        (lambda header: header.with_name("missing.h").touch(), Kind.PASS),
        (lambda header: header.unlink(), Kind.PASS),
    ],
    ids=["nothing", "edited", "edited and back", "appeared", "removed"],
)
def test_a_part_whose_headers_changed_while_it_was_compiled_is_told(
    command: Command, change: Callable[[Path], object], kind: Kind, tmp_path: Path
) -> None:
    """Its object may be of either version, so it has no mark; an unknown token has none either."""
    header = tmp_path / "it.h"
    header.write_text("1")
    source = b'#include "it.h"\n#include "missing.h"\n'
    token, _ = command.build(source=source, options=f"-I{tmp_path}", kind=Kind.PART).fields
    tick(tmp_path)
    change(header)
    assert ask(command.path, Kind.PART_COMPILED, token).kind == kind
    assert ask(command.path, Kind.PART_COMPILED, token).kind == Kind.PASS


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"options": "-save-temps"}, "'-save-temps' reads or writes files"),
        ({"options": "-cl-kernel-arg-info"}, "requests data that this driver's binaries lack"),
        ({"driver": "0.1"}, "its driver is not seen"),
        ({"device": "pocl"}, "its compiler builds at first launch"),
    ],
    ids=["refused", "not in binaries", "unknown device", "late"],
)
def test_a_program_that_is_no_part_is_told_why(command: Command, asked: Mapping[str, Any], why: str) -> None:
    """A part that could not be stored as a build cannot be linked from the cache."""
    assert command.build(kind=Kind.PART, **asked).kind == Kind.PASS
    (one,) = command.end()
    assert one.reason.startswith("clCompileProgram is not served: ") and why in one.reason


@pytest.mark.parametrize("young", [False, True], ids=["old", "young"])
def test_a_part_is_named_though_its_device_was_identified_while_it_was_compiled(
    stores: Stores, rows: Sequence[Device], tmp_path: Path, *, young: bool
) -> None:
    """A part gets its name late, unless a header may have changed since the request."""
    probed, header = Event(), tmp_path / "it.h"
    header.touch()
    devices = Devices(probe=lambda: (probed.wait(), rows)[1], wait_s=0.01)

    def known() -> bool:
        with suppress(TargetError):
            return bool(devices.files(_told(_row(rows, "intel"))))
        return False

    with ExitStack() as ends:
        command = Command(stores, rows, ends, devices)
        source = b'#include "it.h"\n' if young else SOURCE
        token, _ = command.build(source=source, options=f"-I{tmp_path}", kind=Kind.PART).fields
        probed.set()
        wait_until(known)
        named = ask(command.path, Kind.PART_COMPILED, token).kind
    assert named == (Kind.PASS if young else Kind.HIT)


@pytest.mark.parametrize("option", ["-create-library", "-create-library -enable-link-options"])
def test_libraries_are_not_linked_from_the_cache(command: Command, option: str) -> None:
    """They are not programs."""
    assert command.link(command.part(), options=option).kind == Kind.PASS


@pytest.mark.parametrize("marks", [b"", b"\n", b"0" * 64, b"x" * 64 + b"\n", SOURCE])
def test_a_link_without_marks_is_passed(command: Command, marks: bytes) -> None:
    """A link without marks is passed without an outcome."""
    assert command.build(source=marks, kind=Kind.LINK).kind == Kind.PASS
    assert command.end() == ()


class Memory:
    """The memory of known devices."""

    keeps = True

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def recall(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def remember(self, name: str, data: bytes) -> None:
        self.kept[name] = data


def _told(row: Device) -> Facts:
    library, *values = (value.decode() for value in _facts(row))
    return Facts(library, tuple(values))


def test_devices_are_remembered(rows: Sequence[Device]) -> None:
    """The next command's first build waits for no probe."""
    memory, intel = Memory(), _row(rows, "intel")
    Devices(memory, lambda: rows).match(_told(intel), str(Path.cwd()))
    wait_until(lambda: bool(memory.kept))
    again = Devices(memory, lambda: pytest.fail("it was probed"))
    again.begin()
    assert again.match(_told(intel), str(Path.cwd())) == (intel.target, intel.toolchain)


def test_devices_are_remembered_of_a_loader_that_is_told_the_same(
    rows: Sequence[Device], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A target may have another name next to other drivers."""
    memory, intel = Memory(), _row(rows, "intel")
    Devices(memory, lambda: rows).match(_told(intel), str(Path.cwd()))
    wait_until(lambda: bool(memory.kept))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    again = Devices(memory, list)
    again.begin()
    with pytest.raises(TargetError):
        again.match(_told(intel), str(Path.cwd()))


def test_a_driver_that_changed_is_probed_again(rows: Sequence[Device], tmp_path: Path) -> None:
    """A remembered device counts only while every file of its driver is unchanged."""
    memory = Memory()
    library = tmp_path / "driver.so"
    library.write_bytes(b"one")
    row = _row(rows, "intel")._replace(files=(str(library),))
    facts = Facts(str(library), _told(row).values)
    Devices(memory, lambda: [row]).match(facts, str(Path.cwd()))
    wait_until(lambda: bool(memory.kept))
    library.write_bytes(b"other")
    again = Devices(memory, list)
    again.begin()
    with pytest.raises(TargetError):
        again.match(facts, str(Path.cwd()))


def test_a_driver_of_another_build_is_another(rows: Sequence[Device], tmp_path: Path) -> None:
    """Versions alone do not distinguish builds: the file decides, in any place."""
    copy, other = tmp_path / "copy.so", tmp_path / "other.so"
    row = _row(rows, "intel")
    ours = tmp_path / "ours.so"
    ours.write_bytes(b"driver")
    copy.write_bytes(b"driver")
    other.write_bytes(b"rebuilt")
    row = row._replace(files=(str(ours),))
    devices = Devices(probe=lambda: [row])
    assert devices.match(Facts(str(copy), _told(row).values), str(Path.cwd()))[0] == row.target
    with pytest.raises(TargetError, match="its driver is not seen"):
        devices.match(Facts(str(other), _told(row).values), str(Path.cwd()))
