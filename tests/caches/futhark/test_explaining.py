"""Whether Futhark would restore a file, and if not why."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Served
from gpucache.caches.futhark.explaining import Candidate, explain, read_question
from gpucache.caches.futhark.file import key_of
from gpucache.errors import UsageError
from gpucache.keys import Difference
from tests.caches.futhark.build import (
    KEY,
    OPENCL_OPTIONS,
    OPTIONS,
    PTX,
    SOURCE,
    SPIRV,
    asked,
    cuda_log,
    file_bytes,
    open_cache,
)

_ASKING = b"Restoring cache from from ./foo.cache..."
_TILE = b"-Dval_main_tile_size_6=16"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sound cache file of the source and the options."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes())
    return path


def _with(option: bytes, instead_of: bytes = _TILE) -> tuple[bytes, ...]:
    return tuple(option if one == instead_of else one for one in OPTIONS)


def test_the_same_inputs_are_a_hit(file: Path) -> None:
    """All of the key matches."""
    reach = asked(file)
    assert (reach.verdict, reach.nearest, reach.differences) == (Served.HIT, KEY.hex(), ())


def test_options_of_a_log_are_a_hit(file: Path) -> None:
    """A log gives the options as well."""
    assert asked(file, (), log=cuda_log(OPTIONS, _ASKING)).verdict is Served.HIT


def test_a_changed_option_is_named(file: Path) -> None:
    """The option with the value that the file was made with, and the one wanted."""
    reach = asked(file, _with(b"compute_90", b"compute_80"))
    assert reach.verdict is Verdict.KEY_CHANGED
    assert reach.differences == (Difference("-arch", "compute_80", "compute_90"),)
    assert "compiles again" in reach.detail
    assert reach.detail.startswith("most likely it was made with compute_80 and not compute_90, as no other ")


def test_a_change_behind_the_first_eight_bytes_is_a_false_hit(tmp_path: Path) -> None:
    """Futhark does not see a change whose digits stand at places of other words of the key."""
    made, wanted = (*OPTIONS, b"-Dval_abc=16"), (*OPTIONS, b"-Dval_abc=32")
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of(made, SOURCE)))
    assert key_of(made, SOURCE)[:8] == key_of(wanted, SOURCE)[:8]
    reach = asked(path, wanted)
    assert reach.verdict is Served.FALSE_HIT
    assert reach.differences == (Difference("-Dval_abc", "-Dval_abc=16", "-Dval_abc=32"),)
    assert "compares only the first eight bytes" in reach.detail
    assert not reach.hit


def test_another_source_cannot_be_named(tmp_path: Path) -> None:
    """The file stores no source, and the answer says so."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of(OPTIONS, SOURCE.replace(b"= 1", b"= 2"))))
    reach = asked(path)
    assert (reach.verdict, reach.differences) == (Verdict.KEY_CHANGED, ())
    assert "the source or several options differ" in reach.detail


def test_several_explanations_are_told(tmp_path: Path) -> None:
    """Where the key cannot tell changes apart, none is claimed."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of((b"-Dval_aa=32", b"-Dval_ae=16"), SOURCE)))
    reach = asked(path, (b"-Dval_aa=16", b"-Dval_ae=16"))
    assert reach.differences == ()
    assert "-Dval_aa=32 and not -Dval_aa=16, or it was made with -Dval_ae=32" in reach.detail


def test_an_unlikely_change_is_told_beside_a_likely_one(tmp_path: Path) -> None:
    """A number that few devices have explains the key as well as a usual one, so neither is claimed."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of((b"-Dval_aa=37", b"-Dval_ae=13"), SOURCE)))
    reach = asked(path, (b"-Dval_aa=37", b"-Dval_ae=33"))
    assert reach.differences == ()
    assert reach.detail.startswith("several changes explain the key, which cannot tell them apart")
    assert "made with -Dval_ae=13 and not -Dval_ae=33, or it was made with -Dval_aa=17 and" in reach.detail


def test_a_file_of_another_kind_of_machine(tmp_path: Path) -> None:
    """The same inputs give another key where char has no sign; that is no hit here."""
    source = SOURCE + "// æ\n".encode()
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of(OPTIONS, source, signed=False)))
    reach = asked(path, source=source)
    assert reach.verdict is Verdict.KEY_CHANGED
    assert reach.differences == (Difference("char", "unsigned", "signed"),)
    assert asked(path, source=source, char=b"unsigned").verdict is Served.HIT


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """No file is never built, in a folder that is not there as well."""
    assert asked(tmp_path / "foo.cache").verdict is Verdict.NEVER_BUILT
    assert asked(tmp_path / "no" / "foo.cache").verdict is Verdict.NEVER_BUILT


def test_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    """The log's own reason is given."""
    log = cuda_log(OPTIONS, _ASKING, b"Failed to cache PTX: No space left on device")
    assert "No space left on device" in asked(tmp_path / "foo.cache", log=log).detail


@pytest.mark.parametrize("data", [b"", file_bytes()[:20], file_bytes()[:-1], file_bytes() + b"x", b"junk"])
def test_a_damaged_file_is_corrupt(tmp_path: Path, data: bytes) -> None:
    """Futhark compiles again whatever the key."""
    path = tmp_path / "foo.cache"
    path.write_bytes(data)
    assert asked(path).verdict is Verdict.CORRUPT


def test_a_broken_payload_is_no_hit(tmp_path: Path) -> None:
    """A key that matches does not help where the driver will refuse the rest."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(payload=PTX[:-2]))
    reach = asked(path)
    assert reach.verdict is Verdict.CORRUPT
    assert "the key matches, but its ptx payload is broken" in reach.detail


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    """Its key is not read."""
    link = tmp_path / "link.cache"
    link.symlink_to(file)
    assert asked(link).verdict is Verdict.OPAQUE_KEY


@pytest.mark.parametrize("lines", [(), (b"Creating kernel main_segmap.",)])
def test_a_log_without_a_line_about_the_file(file: Path, lines: tuple[bytes, ...]) -> None:
    """It says nothing of whether the program asked: the key alone decides, with a note."""
    reach = asked(file, (), log=cuda_log(OPTIONS, *lines))
    assert reach.verdict is Served.HIT
    assert reach.detail.endswith("the log has no line about a cache file")
    other = asked(file, (), log=cuda_log(_with(b"-Dval_main_tile_size_6=32"), *lines))
    assert other.verdict is Verdict.KEY_CHANGED


def test_a_log_of_a_start_that_asked_for_another_file(file: Path) -> None:
    """The file would fit, and the program was told of another."""
    reach = asked(file, log=cuda_log(OPTIONS, b"Restoring cache from from bar.cache..."))
    assert reach.verdict is Verdict.NOT_CONSULTED
    assert "bar.cache" in reach.detail


def test_what_the_log_says_is_added(file: Path) -> None:
    """A file that fits now was absent then."""
    log = cuda_log(OPTIONS, _ASKING, b"Failed to restore cache (errno: No such file or directory)")
    reach = asked(file, log=log)
    assert reach.verdict is Served.HIT
    assert reach.detail.endswith("the log says that the file did not exist")


def test_an_opencl_build_that_failed(tmp_path: Path) -> None:
    """The file is restored at every start, and every start fails."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of((OPENCL_OPTIONS,), SOURCE), SPIRV))
    log = (
        b"OpenCL compiler options: " + OPENCL_OPTIONS + b"\n" + _ASKING + b"\nCache restored; loading OpenCL"
    )
    log += b" binary...\nLoading succeeded.\n./foo: Compilation of OpenCL program failed.\n"
    reach = asked(path, (), log=log)
    assert reach.verdict is Verdict.REJECTED
    assert "remove the file" in reach.detail


@pytest.mark.parametrize("options", [(OPENCL_OPTIONS,), tuple(OPENCL_OPTIONS.split(b" "))])
def test_opencl_options_whole_or_in_parts(tmp_path: Path, options: tuple[bytes, ...]) -> None:
    """OpenCL's string is one input, however it is given; NVIDIA's binary is PTX, as CUDA's is."""
    path = tmp_path / "foo.cache"
    for payload in (SPIRV, PTX):
        path.write_bytes(file_bytes(key_of((OPENCL_OPTIONS,), SOURCE), payload))
        assert asked(path, options).verdict is Served.HIT


def test_the_backend_is_told_from_what_the_file_holds(tmp_path: Path) -> None:
    """Options that fit any backend are joined for a file of OpenCL's."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of((b"-DX=1 -DY=2",), SOURCE), SPIRV))
    assert asked(path, (b"-DX=1", b"-DY=2")).verdict is Served.HIT
    assert asked(path, (b"-DX=1", b"-DY=2"), backend=b"cuda").verdict is Verdict.KEY_CHANGED
    assert asked(path, (b"-DX=1", b"-DY=3")).differences == (Difference("-DY", "-DY=2", "-DY=3"),)


def test_an_option_that_cancels_is_told(file: Path) -> None:
    """A folder given twice is in the key as often as one given never."""
    reach = asked(file, (*OPTIONS, b"-I/opt/cuda/include", b"-I/opt/cuda/include"))
    assert reach.verdict is Served.HIT
    assert "-I/opt/cuda/include is given an even number of times" in reach.detail


def test_cuda_home_of_the_usual_folder(tmp_path: Path) -> None:
    """A variable that names the folder which is always there takes that folder out of the key."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of((*OPTIONS, b"-I/usr/local/cuda/include"), SOURCE)))
    reach = asked(path)
    assert "twice, which cancels (one of CUDA_HOME, CUDA_ROOT, CUDA_PATH was /usr/local/cuda)" in reach.detail


def test_a_folder_of_the_environment_is_named(tmp_path: Path) -> None:
    """A value of another start is tried."""
    path = tmp_path / "foo.cache"
    path.write_bytes(file_bytes(key_of((*OPTIONS, b"-I/sw/cuda/include"), SOURCE)))
    reach = asked(path, environment=b"CUDA_HOME=/sw/cuda")
    assert reach.differences == (Difference("-I", "-I/sw/cuda/include", None),)


def test_every_file_of_a_folder_is_answered(tmp_path: Path) -> None:
    """Each file has an answer of its own, unless the log names one of them."""
    for name in ("a.cache", "b.cache"):
        (tmp_path / name).write_bytes(file_bytes())
    wanted = {"source": (SOURCE,), "option": OPTIONS}
    assert [one.verdict for one in open_cache(tmp_path).explain(wanted)] == [Served.HIT, Served.HIT]
    named = {**wanted, "log": (cuda_log(OPTIONS, b"Restoring cache from from /x/a.cache..."),)}
    assert [one.wanted[:7] for one in open_cache(tmp_path).explain(named)] == ["a.cache"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"kernel": (b"x",)}, "no field 'kernel'; ask for source, log, option"),
        ({"option": (b"x",)}, "--dump-cuda"),
        ({"source": (b"x",)}, "-L"),
        ({"source": (b"x",), "log": (b"no list of options",)}, "-L"),
        ({"source": (b"x", b"y"), "option": (b"x",)}, "given 2 times"),
        ({"source": (b"x",), "option": (b"x",), "backend": (b"metal",)}, "one of cuda, hip, opencl"),
        ({"source": (b"x",), "option": (b"x",), "char": (b"\x1b[1m",)}, "one of signed, unsigned"),
        ({"source": (b"x",), "option": (b"x",), "environment": (b"HOME=/",)}, "CUDA_HOME"),
        ({"source": (b"x",), "option": (b"x",), "environment": (b"CUDA_HOME",)}, "NAME=VALUE"),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, wanted: dict[str, tuple[bytes, ...]], message: str) -> None:
    """A wrong question is refused at once, with what to ask instead."""
    with pytest.raises(UsageError, match=message):
        list(open_cache(tmp_path).explain(wanted))


_BYTES = st.binary(max_size=40)


@given(
    _BYTES,
    st.lists(_BYTES | st.sampled_from(OPTIONS), min_size=1, max_size=4),
    _BYTES | st.just(cuda_log(OPTIONS[:3])),
    st.binary(min_size=32, max_size=32),
    st.sampled_from([b"cuda", b"hip", b"opencl"]),
)
def test_any_bytes_are_explained(
    source: bytes, options: list[bytes], log: bytes, key: bytes, backend: bytes
) -> None:
    """Whatever is asked of whatever key, there is one answer that can be shown."""
    wanted = {"source": (source,), "option": tuple(options), "log": (log,), "backend": (backend,)}
    candidate = Candidate("f", key, key.hex(), "cuda", "", readable=True, payload_problem=str)
    (reach,) = explain(read_question(wanted), [candidate])
    assert reach.verdict in (Verdict.KEY_CHANGED, Served.FALSE_HIT, Served.HIT)
    assert reach.detail.isprintable()
    assert all((one.left or "").isprintable() for one in reach.differences)


@given(st.lists(st.sampled_from(OPTIONS), unique=True, min_size=1), st.binary(max_size=60))
def test_the_own_key_is_always_a_hit(options: list[bytes], source: bytes) -> None:
    """A file with the key of the question is a hit on either kind of machine."""
    for char in (b"signed", b"unsigned"):
        key = key_of(options, source, signed=char == b"signed")
        wanted = {"source": (source,), "option": tuple(options), "char": (char,), "backend": (b"cuda",)}
        candidate = Candidate("f", key, "", "", "", readable=True, payload_problem=str)
        (reach,) = explain(read_question(wanted), [candidate])
        assert reach.hit


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((*OPTIONS, b"-I/opt/cuda/include"), "without -I/opt/cuda/include (CUDA_HOME"),
        ((*OPTIONS, b"-G", b"-G"), "with -G once more or once less than now"),
        (OPTIONS[:-1], "with -DTR_ELEMS_PER_THREAD=8, which is not given now"),
    ],
)
def test_one_option_more_or_less_is_told(tmp_path: Path, options: tuple[bytes, ...], words: str) -> None:
    """The sentence says what the file was made with, and where a folder comes from."""
    path = tmp_path / "foo.cache"
    made = (*OPTIONS, b"-G") if b"-G" in options else OPTIONS
    path.write_bytes(file_bytes(key_of(made, SOURCE)))
    assert words in asked(path, options).detail
