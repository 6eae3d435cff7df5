"""Recorded builds that hypothesis makes, and one by hand."""

from hypothesis import strategies as st

from gpucache.keys import Include
from gpucache.model import ArtifactKind, Language
from gpucache.recording.builds import Call, Header, RecordedBuild, Recording, Seen

DIGESTS = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")
TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=12)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
NAMES = st.text("abc.é", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
_BACKENDS = {Language.CUDA_CPP: "cuda", Language.HIP_CPP: "hip"}
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
SIZES = st.lists(st.integers(1, 1024), max_size=3).map(tuple)
HEADERS = st.builds(Header, PATHS, DIGESTS, st.integers(0, 9))
INCLUDES = st.builds(Include, TEXTS, st.none() | DIGESTS | DIGESTS.map("{} in memory".format))
BUILDS = st.builds(
    lambda language, name, **more: RecordedBuild(
        language=language, target=f"{_BACKENDS.get(language, 'opencl')}:{name}", **more
    ),
    program=TEXTS,
    language=st.sampled_from(Language),
    name=NAMES,
    source=DIGESTS,
    options=st.lists(TEXTS, max_size=3).map(tuple),
    folders=st.lists(PATHS, max_size=3).map(tuple),
    headers=st.lists(HEADERS, max_size=3).map(tuple),
    includes=st.lists(INCLUDES, max_size=3).map(tuple),
    resolution=DIGESTS,
    implementation=TEXTS,
    toolchain=PAIRS,
    identity=st.lists(TEXTS, max_size=2).map(tuple),
    environment=PAIRS,
    name_expressions=st.lists(TEXTS, max_size=2).map(tuple),
    artifact_kind=st.sampled_from(ArtifactKind),
    file_name=TEXTS,
    made_up=st.booleans(),
    memory_headers=st.lists(st.tuples(TEXTS, DIGESTS), max_size=2).map(tuple),
)
SEEN = st.builds(
    Seen,
    local_sizes=st.frozensets(st.tuples(TEXTS, SIZES), max_size=3),
    compile_ns=st.integers(0, 2**62),
    built=st.booleans(),
    refused=st.booleans(),
    roots=st.frozensets(st.lists(TEXTS, max_size=2).map(tuple), max_size=2),
    calls=st.frozensets(
        st.builds(
            Call, st.lists(TEXTS, max_size=2).map(tuple), TEXTS, st.lists(TEXTS, max_size=2).map(tuple)
        ),
        max_size=2,
    ),
    first=st.none() | st.tuples(st.integers(0, 2**62), TEXTS),
)


def recording(rows: list[tuple[RecordedBuild, Seen]]) -> Recording:
    return Recording({build.digest: build for build, _ in rows}, {build.digest: seen for build, seen in rows})


@st.composite
def alike(draw: st.DrawFn) -> tuple[Recording, Recording, Recording]:
    rows = draw(st.lists(BUILDS, min_size=1, max_size=3))
    some = st.lists(st.tuples(st.sampled_from(rows), SEEN), max_size=4).map(recording)
    return draw(some), draw(some), draw(some)


ONE = RecordedBuild(
    program="twice",
    language=Language.OPENCL_C,
    source="a" * 64,
    options=("-DN=2",),
    folders=("0",),
    headers=(Header("0/a.h", "b" * 64, 0),),
    includes=(Include("a.h", "b" * 64),),
    resolution="c" * 64,
    target="opencl:pocl/cpu",
    implementation="pocl",
    toolchain=(("platform name", "PoCL"), ("driver version", "3.1")),
    identity=("platform name",),
)
