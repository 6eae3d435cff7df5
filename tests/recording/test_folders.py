"""A recording on disk: who may read it, the result of several writers, and the cost of damage."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.errors import SourceError, UsageError
from gpucache.keys import digest
from gpucache.recording import builds, reading
from gpucache.recording.builds import Seen
from gpucache.recording.reading import RecordingFolder, read_recording, replay
from gpucache.recording.writing import Writer
from tests.recording.builds import ONE

SOURCE, HEADER = b"kernel void twice(global int *out) { *out = N; }", b"#define N 2\n"
BUILD = replace(ONE, source=digest(SOURCE), headers=(replace(ONE.headers[0], digest=digest(HEADER)),))
CONTENTS = {digest(SOURCE): SOURCE, digest(HEADER): HEADER}
SEEN = Seen(frozenset({("twice", (64,))}), compile_ns=7, first=(1, "solver"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Writer(tmp_path / "recording").build(BUILD, SEEN, CONTENTS)
    return tmp_path / "recording"


def lines_of(folder: Path) -> Path:
    [file] = folder.glob("*.jsonl")
    return file


def test_only_its_owner_may_read_a_recording(folder: Path) -> None:
    """Sources are secret, whatever the umask."""
    modes = {path: path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    assert {modes.pop(folder), modes.pop(folder / "blobs")} == {0o700}
    assert set(modes.values()) == {0o600}


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    """An existing directory is not made private without its owner's knowledge."""
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match="chmod 700"):
        Writer(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SourceError, match="is not a recording"):
        read_recording(tmp_path)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    """A path that cannot be a directory is refused before the command runs."""
    (tmp_path / "taken").touch()
    with pytest.raises(UsageError, match="name another directory"):
        Writer(tmp_path / "taken")


def test_what_was_written_is_read(folder: Path) -> None:
    """One writer's builds, with their observations and contents."""
    found = read_recording(folder)
    assert found.recording.rows() == [(BUILD, SEEN)]
    assert found.has_sources(BUILD)
    assert found.content(BUILD.source) == SOURCE
    assert not found.damage


def test_writers_and_threads_share_a_folder(tmp_path: Path) -> None:
    """Several processes, and threads of each, write into one directory; the recording is the union."""
    writers = [Writer(tmp_path / "shared") for _ in range(3)]
    seen = [Seen(frozenset({("twice", (size,))})) for size in range(1, 25)]
    told = set()

    def write(number: int) -> None:
        for size in seen[number::6]:
            told.add(writers[number % 3].build(BUILD, size, CONTENTS))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_recording(tmp_path / "shared")
    assert not found.damage
    assert told == {""}
    [(build, both)] = found.recording.rows()
    assert build == BUILD
    assert both.sizes == tuple((size,) for size in range(1, 25))


def test_a_recording_is_merged_by_copying(folder: Path, tmp_path: Path) -> None:
    """Anyone's tools may copy files of another recording into a directory."""
    other = replace(BUILD, options=("-DN=3",))
    Writer(tmp_path / "other").build(other, SEEN, CONTENTS)
    file = lines_of(tmp_path / "other")
    (folder / file.name).write_bytes(file.read_bytes())
    (folder / "again.jsonl").write_bytes(file.read_bytes())
    assert {build for build, _ in read_recording(folder).recording.rows()} == {BUILD, other}


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    """A build beyond the limits of a line is reported when it is written, not later when it misses."""
    writer = Writer(tmp_path / "recording")
    assert "65536" in writer.build(replace(BUILD, options=("x" * 70_000,)), SEEN, CONTENTS)
    assert writer.build(BUILD, SEEN, CONTENTS) == ""
    assert read_recording(tmp_path / "recording").recording.rows() == [(BUILD, SEEN)]


def test_what_is_known_is_not_written_again(folder: Path, tmp_path: Path) -> None:
    """A program that builds the same a thousand times makes one line."""
    writer = Writer(tmp_path / "again")
    for _ in range(3):
        writer.build(BUILD, SEEN, CONTENTS)
        writer.seen(BUILD.digest, SEEN)
    assert lines_of(tmp_path / "again").read_bytes().count(b"\n") == 1


def test_half_a_line_costs_that_line(folder: Path) -> None:
    """A killed writer leaves half a line, which is reported and skipped."""
    file = lines_of(folder)
    file.write_bytes(file.read_bytes() + file.read_bytes()[:100])
    found = read_recording(folder)
    assert found.recording.rows() == [(BUILD, SEEN)]
    assert [(one.file, one.line) for one in found.damage] == [(file.name, 2)]


def test_a_line_without_end_is_not_read_into_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond its limit is skipped, and the next one is read."""
    file = lines_of(folder)
    for module in (reading, builds):
        monkeypatch.setattr(module, "LINE_CAP", len(file.read_bytes()))
    file.write_bytes(b"x" * 5 * len(file.read_bytes()) + b"\n" + file.read_bytes())
    found = read_recording(folder)
    assert found.recording.rows() == [(BUILD, SEEN)]
    assert [one.why for one in found.damage] == ["it is longer than 0 MiB"]


def test_lines_are_read_up_to_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of any size takes bounded memory, and the report says where it was cut."""
    monkeypatch.setattr(reading, "BYTES_CAP", 10)
    found = read_recording(folder)
    assert not found.recording.rows()
    assert [one.line for one in found.damage] == [1]


def test_what_adds_to_nothing_is_told(folder: Path) -> None:
    """A line about an unknown build is reported."""
    file = lines_of(folder)
    writer = Writer(folder)
    writer.build(BUILD, Seen(), CONTENTS)
    writer.seen(BUILD.digest, SEEN)
    [later] = set(folder.glob("*.jsonl")) - {file}
    later.write_bytes(later.read_bytes().splitlines(keepends=True)[1])
    assert [one.why for one in read_recording(folder).damage] == ["it adds to a build that was not read"]


@pytest.mark.parametrize("make", ["missing", "empty", "file"])
def test_what_is_no_recording_is_told(tmp_path: Path, make: str) -> None:
    """A wrong directory is distinguished from an empty recording."""
    place = tmp_path / "wrong"
    if make == "empty":
        place.mkdir()
    elif make == "file":
        place.touch()
    with pytest.raises(SourceError, match="gpucache record"):
        read_recording(place)


@pytest.mark.parametrize("how", ["changed", "gone", "link", "fifo"])
def test_a_blob_that_is_not_what_it_says_is_not_used(folder: Path, tmp_path: Path, how: str) -> None:
    """A source matches its name, is a regular file, and is read without following links or blocking."""
    blob = folder / "blobs" / BUILD.source
    content = blob.read_bytes()
    blob.unlink()
    if how == "changed":
        blob.write_bytes(content + b" ")
    elif how == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        blob.symlink_to(tmp_path / "elsewhere")
    elif how == "fifo":
        os.mkfifo(blob)
    found = read_recording(folder)
    with pytest.raises(SourceError, match="record again"):
        found.content(BUILD.source)
    [one] = replay(found, tmp_path / "laid")
    assert one.source is None
    assert one.problem


def test_digests_alone_keep_no_source(tmp_path: Path) -> None:
    """With digests only there are names and keys, and not a byte of the sources."""
    place = tmp_path / "digests"
    Writer(place, sources=False).build(BUILD, SEEN, CONTENTS)
    assert not (place / "blobs").exists()
    assert b"define" not in lines_of(place).read_bytes()
    [one] = replay(read_recording(place), tmp_path / "laid")
    assert (one.source, one.problem) == (None, "")


def test_a_failed_build_is_not_replayed(tmp_path: Path) -> None:
    """A build that failed in the program is not tried again."""
    place = tmp_path / "failed"
    Writer(place).build(BUILD, Seen(refused=True), CONTENTS)
    assert not [*replay(read_recording(place), tmp_path / "laid")]


def test_what_compiled_once_is_replayed(tmp_path: Path) -> None:
    """A compiler that failed now and then, as for want of memory, has not refused the program."""
    place = tmp_path / "both"
    Writer(place).build(BUILD, Seen(refused=True), CONTENTS)
    Writer(place).build(BUILD, Seen(built=True), CONTENTS)
    assert len([*replay(read_recording(place), tmp_path / "laid")]) == 1


def test_what_cannot_be_laid_out_costs_that_build(tmp_path: Path) -> None:
    """A recording in which one path is both a file and a directory loses only that build."""
    paths = ("0/a", "0/a/b")
    headers = tuple(replace(BUILD.headers[0], path=path, number=len(path)) for path in paths)
    odd = replace(BUILD, headers=headers)
    place = tmp_path / "odd"
    for build in (odd, BUILD):
        Writer(place).build(build, SEEN, CONTENTS)
    told = {one.build.digest: one.problem for one in replay(read_recording(place), tmp_path / "laid")}
    assert told[BUILD.digest] == ""
    assert "cannot be laid out" in told[odd.digest]


def test_two_recordings_are_one(folder: Path) -> None:
    """The result is the same whichever process wrote first."""
    found: RecordingFolder = read_recording(folder)
    assert found.recording.union(found.recording) == found.recording


def test_a_path_of_a_thousand_folders_costs_its_own_line(folder: Path, tmp_path: Path) -> None:
    """Its headers could not be laid out; the other builds are."""
    header = replace(BUILD.headers[0], path=f"0/{'a/' * 1000}x.h")
    deep = replace(BUILD, headers=(header,), folders=("0/" + "a/" * 999 + "a",))
    assert "at most 256 directories" in Writer(folder).build(deep, SEEN, CONTENTS)
    with lines_of(folder).open("ab") as file:
        file.write(builds.build_line(deep, SEEN))
    found = read_recording(folder)
    assert [(one.line, "at most 256 directories" in one.why) for one in found.damage] == [(2, True)]
    assert [one.problem for one in replay(found, tmp_path / "place")] == [""]
