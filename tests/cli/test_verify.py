"""``gpucache verify`` on entries of real compilers, sound and damaged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.model import Device, Entry
from gpucache.store.directory import DirectoryStore
from tests.cli.conftest import entry_of, upgraded

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Filled, Run

Files = Callable[[Path], list[Path]]
Write = Callable[..., Path]
Hurt = Callable[[Path], Path]
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'


def _kinds(answer: Answer) -> list[tuple[str, str]]:
    return sorted((row["kind"], row["entry"]) for row in answer.document["outcomes"])


def _holding(entry: Entry, payload: bytes) -> Entry:
    head = entry.head._replace(payload_sha256=sha256(payload).hexdigest())
    return entry._replace(payload=payload, head=head)


def test_a_filled_cache_is_sound(run: Run, mixed: Filled) -> None:
    """Everything that three compilers built is checked and sound."""
    answer = run("--json", "verify", "--strict", at=mixed.root)
    summary = answer.document["summary"]
    assert (answer.code, summary["checked"], summary["sound"], summary["findings"]) == (0, 4, 4, 0)


def test_drivers_are_asked_where_an_entry_names_one(
    run: Run, mixed: Filled, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the drivers of existing entries are queried."""
    asked: list[Sequence[str] | None] = []

    def ask(backends: Sequence[str] | None = None, **_: object) -> list[Device]:
        asked.append(backends)
        return []

    monkeypatch.setattr("gpucache.probe.ask.ask", ask)
    assert run("verify").code == 0
    assert asked == []
    assert run("verify", "cuda:sm_90", at=mixed.root).code == 0
    assert run("verify", at=mixed.root).code == 0
    assert asked == [["cuda"], ["cuda", "opencl"]]


def test_nothing_is_sound_too(run: Run, root: Path) -> None:
    """A cache that does not exist has nothing to check, and is not made by verify."""
    assert run("verify").code == 0
    assert not root.exists()


def flipped(entry: Path) -> Path:
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    return entry


def truncated(entry: Path) -> Path:
    entry.write_bytes(entry.read_bytes()[:-1])
    return entry


def misplaced(entry: Path) -> Path:
    other = "0" if entry.stem[-1] != "0" else "1"
    return entry.rename(entry.with_name(f"{entry.stem[:-1]}{other}.gpc"))


def untrusted(entry: Path) -> Path:
    entry.chmod(0o666)
    return entry


DAMAGES = [(flipped, "corrupt"), (truncated, "truncated"), (misplaced, "misplaced"), (untrusted, "untrusted")]


@pytest.mark.parametrize(("hurt", "kind"), DAMAGES)
def test_damage_is_found(run: Run, cache: Path, entries: Files, hurt: Hurt, kind: str) -> None:
    """One byte changed or missing, another name, or a mode that lets others write is exit 3."""
    hurt_entry = hurt(entries(cache)[0])
    answer = run("--json", "verify")
    assert (answer.code, _kinds(answer)) == (3, [(kind, hurt_entry.stem)])
    assert answer.document["summary"]["sound"] == 3
    assert kind in run("verify").out


def test_what_was_repaired_is_built_again(
    run: Run, cache: Path, entries: Files, mixed: Filled, pocl: str, intel: str
) -> None:
    """--repair moves entries to quarantine, verify is clean again, and warm builds just those."""
    for entry, (hurt, _) in zip(entries(cache), DAMAGES[:3], strict=False):
        hurt(entry)
    repaired = run("--json", "verify", "--repair")
    assert (repaired.code, repaired.document["summary"]["repaired"]) == (0, 3)
    assert len([path for path in (cache / "v1" / "quarantine").rglob("*") if path.is_file()]) == 3
    after = run("--json", "verify", "--strict")
    assert (after.code, after.document["summary"]["checked"]) == (0, 1)
    targets = [f"--target={target}" for target in (pocl, intel, "cuda:sm_90", "cuda:compute_80")]
    sources = [mixed.sources / "twice.cl", mixed.sources / "twice.cu"]
    warmed = run("--json", "warm", *sources, *targets, "--local-size", "64")
    summary = warmed.document["summary"]
    assert (warmed.code, summary["built"], summary["hit"]) == (0, 3, 1)


def test_a_relabelled_payload_is_found(run: Run, cache: Path, nvrtc: str) -> None:
    """An entry that is sound as a file but contains a cubin for another architecture is mislabelled."""
    store, entry = entry_of(cache, nvrtc)
    store.publish(entry._replace(head=entry.head._replace(target="cuda:sm_80")))
    answer = run("--json", "verify")
    assert (answer.code, _kinds(answer)) == (3, [("mislabelled", str(entry.key))])


def test_a_key_that_is_not_of_its_fields_is_found(run: Run, cache: Path, nvrtc: str) -> None:
    """The key is computed again from the key fields that the entry stores."""
    store, entry = entry_of(cache, nvrtc)
    store.publish(entry._replace(detail=entry.detail._replace(key_fields=entry.detail.key_fields[1:])))
    assert _kinds(run("--json", "verify")) == [("corrupt", str(entry.key))]


def test_an_old_toolchain_leaves_stale_and_superseded_entries(run: Run, cache: Path, pocl: str) -> None:
    """After an upgrade the old entry is stale and superseded: worth knowing, and exit 3 with --strict."""
    old = upgraded(cache, pocl)
    answer = run("--json", "verify")
    assert (answer.code, _kinds(answer)) == (0, [("stale", str(old.key)), ("superseded", str(old.key))])
    assert answer.document["summary"]["sound"] == 5
    assert run("verify", "--strict").code == 3


def test_an_entry_for_another_machine_is_not_stale(run: Run, cache: Path, nvrtc: str) -> None:
    """An entry for a target that is merely absent is not a finding."""
    store, entry = entry_of(cache, nvrtc)
    label = entry.head.toolchain_identity[0]
    toolchain = tuple((name, "elsewhere" if name == label else value) for name, value in entry.head.toolchain)
    store.publish(entry._replace(head=entry.head._replace(toolchain=toolchain)))
    assert _kinds(run("--json", "verify", "--strict")) == []


def test_leftovers_are_found_and_removed(run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed writer's file of two hours ago is worth knowing, and --repair removes it."""
    later = time.time_ns() + 2 * 3600 * 10**9
    monkeypatch.setattr("gpucache.caches.own.time", SimpleNamespace(time_ns=lambda: later))
    left = cache / "v1" / "tmp" / f"1-{16 * 'a'}-{64 * 'b'}.gpc"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half an entry")
    answer = run("--json", "verify")
    assert [row["kind"] for row in answer.document["outcomes"]] == ["leftover"]
    assert (answer.code, answer.document["summary"]["checked"]) == (0, 4)
    assert run("verify", "--strict").code == 3
    assert run("verify", "--strict", "--repair").code == 0
    assert not left.exists()


def test_only_what_is_named_is_checked(run: Run, cache: Path, entries: Files) -> None:
    """Words select entries as for inspect, and other damage is not reported."""
    row = run("--json", "inspect", "cuda:sm_90").document["outcomes"][0]
    (other,) = (entry for entry in entries(cache) if entry.stem == row["key"])
    flipped(other)
    answer = run("--json", "verify", "twice.cl")
    assert (answer.code, answer.document["summary"]["checked"]) == (0, 2)


def test_verifying_is_no_use(run: Run, cache: Path, entries: Files) -> None:
    """A check of everything leaves every entry's last use alone."""
    before = [entry.stat().st_mtime_ns for entry in entries(cache)]
    assert run("verify").code == 0
    assert [entry.stat().st_mtime_ns for entry in entries(cache)] == before


@pytest.mark.slow
def test_entries_load_on_their_devices(run: Run, mixed: Filled) -> None:
    """PoCL and Intel load their own binaries."""
    answer = run("--json", "verify", "twice.cl", "--load", at=mixed.root)
    summary = answer.document["summary"]
    assert (answer.code, summary["sound"], summary["loaded"], summary["notes"]) == (0, 2, 2, [])


def test_what_cannot_be_loaded_here_is_said(run: Run, mixed: Filled, devices: Any) -> None:
    """Without a CUDA device a cubin is not loaded, which is a note and not a finding."""
    if any(device.backend == "cuda" and device.present for device in devices):
        pytest.skip("a CUDA device is here")
    answer = run("--json", "verify", "cuda:sm_90", "--load", at=mixed.root)
    summary = answer.document["summary"]
    (note,) = summary["notes"]
    assert (answer.code, note["note"].startswith("not loaded: ")) == (0, True)
    assert (summary["checked"], summary["loaded"], summary["rebuilt"]) == (1, 0, None)


def test_a_binary_that_its_driver_rejects_is_found(run: Run, cache: Path, pocl: str) -> None:
    """An entry that is sound as a file but does not load crashes at most a child process, and is exit 3."""
    store, entry = entry_of(cache, pocl)
    half = len(entry.payload) // 2
    store.publish(_holding(entry, entry.payload[:half] + bytes(len(entry.payload) - half)))
    answer = run("--json", "verify", pocl, "--load")
    assert (answer.code, _kinds(answer)) == (3, [("mislabelled", str(entry.key))])


@pytest.mark.slow
def test_an_entry_of_a_renamed_target_is_tried(run: Run, cache: Path, pocl: str) -> None:
    """An entry is loaded, rebuilt and looked up for its compiler, whose target may have had another name."""
    store, entry = entry_of(cache, pocl)
    store.publish(entry._replace(head=entry.head._replace(target="opencl:pocl-0.1/cpu")))
    summary = run("--json", "verify", "opencl:pocl-0.1/cpu", "--load", "--rebuild").document["summary"]
    assert (summary["loaded"], [note["note"][:14] for note in summary["notes"]]) == (1, ["not comparable"])
    answer = run("inspect", "--why", "opencl:pocl-0.1/cpu", "--json")
    assert [row["verdict"] for row in answer.document["outcomes"]] == ["hit"]


@pytest.mark.slow
def test_rebuilding_compares_where_that_can_be_done(run: Run, mixed: Filled, pocl: str, intel: str) -> None:
    """NVRTC returns the same bytes again; PoCL never does, and Intel only for a worker's first program."""
    answer = run("--json", "verify", "--rebuild", at=mixed.root)
    summary = answer.document["summary"]
    assert (answer.code, summary["checked"], summary["sound"]) == (0, 4, 4)
    assert summary["rebuilt"] + len(summary["notes"]) == 4
    assert all(note["note"].startswith("not comparable: ") for note in summary["notes"])
    noted = [note["entry"] for note in summary["notes"]]
    rows = run("--json", "inspect", *noted, at=mixed.root).document["outcomes"]
    assert pocl in {row["target"] for row in rows} <= {pocl, intel}


@pytest.mark.slow
def test_rebuilding_finds_bytes_of_another_program(run: Run, root: Path, write: Write, nvrtc: str) -> None:
    """An entry with a sound cubin of another source differs from its source's build."""
    sources = write({"a.cu": VECTOR, "b.cu": VECTOR.replace("1", "2")})
    assert run("warm", sources, "--target", nvrtc).code == 0
    store = DirectoryStore(root, writable=True)
    first, second = (store.check(scanned) for scanned in store.scan())
    assert isinstance(first, Entry) and isinstance(second, Entry)
    store.publish(_holding(first, second.payload))
    answer = run("--json", "verify", "--rebuild")
    assert (answer.code, _kinds(answer)) == (3, [("mislabelled", str(first.key))])


def test_a_changed_source_cannot_be_rebuilt(run: Run, write: Write, nvrtc: str) -> None:
    """If the source file has changed since, a note says so in place of a comparison."""
    source = write({"a.cu": VECTOR}) / "a.cu"
    assert run("warm", source, "--target", nvrtc).code == 0
    source.write_text(VECTOR.replace("1", "2"), encoding="utf-8")
    (note,) = run("--json", "verify", "--rebuild").document["summary"]["notes"]
    assert note["note"] == f"not rebuilt: {source} has changed since"
