"""GPUCACHE_REMOTE in programs that use the library: builds of another machine are hits, and nothing fails."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpucache.store.directory import DirectoryStore
from tests.children import run_python
from tests.nvrtc import need_nvrtc
from tests.pocl import PLATFORM, need_pocl
from tests.remote.fleet import Fleet, compiled, cuda_job, warnings
from tests.remote.servers import Silent

pytestmark = pytest.mark.slow


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    need_nvrtc()
    return Fleet(tmp_path)


@pytest.fixture(name="filled")
def _filled(fleet: Fleet) -> Fleet:
    """One machine has compiled two programs and sent them, signed; the store is not our own."""
    fleet.others()
    assert compiled(fleet.run("maker", cuda_job(1), cuda_job(2), **fleet.signing())) == [1, 1]
    assert len(fleet.objects()) == 2
    return fleet


def test_what_one_machine_compiled_is_a_hit_on_the_next(filled: Fleet) -> None:
    """It is verified, reported as remote, stored, listed as any entry, and a local hit the next time."""
    made = filled.run("maker", cuda_job(1), cuda_job(2))
    first = filled.run("next", cuda_job(1), cuda_job(2), **filled.trusting())
    assert compiled(first) == [0, 0]
    assert [one["code"] for one in first] == [one["code"] for one in made]
    assert [" in remote" in one["log"][0] for one in first] == [True, True]
    assert [path.name for path in filled.entries("next")] == [path.name for path in filled.entries("maker")]
    assert [path.read_bytes() for path in filled.entries("next")] == [
        path.read_bytes() for path in filled.entries("maker")
    ]
    assert compiled(filled.run("next", cuda_job(1), GPUCACHE_REMOTE="")) == [0]
    assert filled.gpucache("next", "verify").returncode == 0
    [event] = DirectoryStore(filled.place / "next", writable=False).history.events("show")[-1:]
    assert event.what == "pulled"


def test_a_store_to_which_only_programs_sent_is_a_store(filled: Fleet) -> None:
    """Each batch has its own catalogue, so every verb sees the entries."""
    told = [
        filled.gpucache("next", *words, str(filled.store), **filled.trusting()).stdout
        for words in (["pull"], ["inspect"], ["verify"], ["evict", "--all", "--yes"])
    ]
    assert "2 entries pulled" in told[0]
    assert "2 entries checked: no fault" in told[2]
    assert "2 entries removed" in told[3]


def test_the_first_store_that_has_an_entry_is_used(filled: Fleet) -> None:
    """A store that comes later has what the first lacks, and the first does not get it from there."""
    near = filled.place / "near store"
    near.mkdir(mode=0o700)
    both = f"{near} {filled.store}"
    settings = {**filled.signing("own"), **filled.trusting("ci", "own"), "GPUCACHE_REMOTE": both}
    assert compiled(filled.run("next", cuda_job(1), cuda_job(3), **settings)) == [0, 1]
    assert len([one for one in (near / "entries").rglob("*-*") if one.is_file()]) == 1
    assert compiled(filled.run("third", cuda_job(1), cuda_job(3), **settings)) == [0, 0]
    assert len(filled.objects()) == 2


def test_an_explanation_names_the_field_that_differs_from_a_fetched_entry(filled: Fleet) -> None:
    """The record of a fetched entry is like that of a local compile."""
    filled.run("next", cuda_job(1), **filled.trusting())
    changed = cuda_job(1)
    changed["arguments"] = {"target": "compute_90", "options": ["-DX=1"]}
    [outcome] = filled.run("next", changed, **filled.trusting())
    assert "key-changed" in outcome["log"][0]


_LOCAL = """
import sys
from gpucache.cuda import compile_program, flush
compile_program('extern "C" __global__ void show(int *out) { *out = 1; }', target="compute_90")
flush() if "flush" in sys.argv else None
ours = ("gpucache.remote", "gpucache.engine.elsewhere")
print([name for name in sys.modules if name.startswith(ours)])
print("cryptography" in sys.modules)
"""


def test_local_hits_open_and_import_nothing_of_a_remote_store(filled: Fleet, tmp_path: Path) -> None:
    """A start with local hits only does not use it, whatever the variables say."""
    settings = {**filled.trusting(), **filled.signing(), "GPUCACHE_REMOTE": "s3://nowhere/at-all"}
    told = run_python("-c", _LOCAL, env=filled.environment("maker", **settings))
    assert told.splitlines() == ["[]", "False"]


@pytest.mark.parametrize("how", ["none", "wrong", "revoked"])
def test_without_a_key_that_is_trusted_every_lookup_misses(filled: Fleet, how: str) -> None:
    """The program compiles, and nothing untrusted reaches its cache; one warning names the remedy."""
    keys = {"none": {}, "wrong": filled.trusting("other"), "revoked": filled.trusting("other", "third")}[how]
    outcomes = filled.run("next", cuda_job(1), cuda_job(2), **keys)
    assert compiled(outcomes) == [1, 1]
    assert [" compiled in " in one["log"][-1] for one in outcomes] == [True, True]
    [sentence] = warnings(outcomes)
    assert "GPUCACHE_TRUSTED_KEYS" in sentence


def test_keys_that_are_no_keys_are_one_warning(filled: Fleet) -> None:
    """It names the variable and the word."""
    outcomes = filled.run("next", cuda_job(1), cuda_job(2), GPUCACHE_TRUSTED_KEYS="oops")
    assert compiled(outcomes) == [1, 1]
    [line] = warnings(outcomes)
    assert "GPUCACHE_TRUSTED_KEYS" in line and "oops" in line


def test_a_store_in_a_directory_needs_no_settings_of_keys(fleet: Fleet) -> None:
    """The user's own key is made and trusted, whoever can write to the directory; nobody else trusts it."""
    fleet.others()
    assert compiled(fleet.run("maker", cuda_job(1), GPUCACHE_REMOTE_WRITE="1")) == [1]
    assert compiled(fleet.run("next", cuda_job(1))) == [0]
    (fleet.place / "home").mkdir()
    settings = {**fleet.trusting(), "HOME": str(fleet.place / "home")}
    assert compiled(fleet.run("other", cuda_job(1), **settings)) == [1]


def test_sending_to_another_store_needs_a_signing_key(fleet: Fleet) -> None:
    """The program's own result is as usual; one warning, and nothing is sent."""
    settings = {"GPUCACHE_REMOTE_WRITE": "1", "GPUCACHE_REMOTE": "oci://127.0.0.1:1/team"}
    outcomes = fleet.run("maker", cuda_job(1), cuda_job(2), **settings)
    assert compiled(outcomes) == [1, 1]
    assert "GPUCACHE_SIGNING_KEY" in warnings(outcomes)[-1]


def test_without_the_variable_nothing_is_sent(fleet: Fleet) -> None:
    """A signing key alone is not a permission."""
    fleet.run("maker", cuda_job(1), GPUCACHE_SIGNING_KEY=fleet.place / "ci", **fleet.trusting())
    assert not fleet.store.exists()


def test_a_process_that_ends_at_once_has_sent_what_it_compiled(fleet: Fleet) -> None:
    """Its end waits for the store, as it does for its own root."""
    source = _LOCAL.replace("print", "str")
    run_python("-c", source, env=fleet.environment("maker", **fleet.signing()))
    assert len(fleet.objects()) == 1


@pytest.mark.parametrize(
    ("setting", "kept", "asked"),
    [("GPUCACHE_DISABLE", 0, 0), ("GPUCACHE_READ_ONLY", 0, 1), ("GPUCACHE_REQUIRE", 1, 1)],
)
def test_a_setting_means_the_same_for_a_remote_store(
    filled: Fleet, setting: str, kept: int, asked: int
) -> None:
    """Disabled sends no request, read-only keeps nothing, and a remote hit satisfies a required one."""
    outcomes = filled.run("next", cuda_job(1), **{setting: "1"}, **filled.trusting())
    assert compiled(outcomes) == [1 - asked]
    assert len(filled.entries("next")) == kept


def test_a_program_without_a_root_uses_a_remote_store(filled: Fleet) -> None:
    """If nothing can be stored, each start fetches."""
    (filled.place / "file").write_text("")
    for _ in range(2):
        outcomes = filled.run("file", cuda_job(1), **filled.trusting())
        assert compiled(outcomes) == [0]


_OPAQUE = """
import sys
from gpucache.cuda import ProgramCache, flush
cache = ProgramCache()
if "put" in sys.argv:
    cache[b"k" * 32] = b"compiled bytes"
flush()
print(cache[b"k" * 32].decode(), cache.get(b"x" * 32))
"""


def test_a_cache_of_cuda_core_is_shared_too(fleet: Fleet) -> None:
    """Its opaque entries are sent, signed, verified and kept as all others."""
    fleet.others()
    run_python("-c", _OPAQUE, "put", env=fleet.environment("maker", **fleet.signing()))
    for settings in (fleet.trusting(), {"GPUCACHE_REMOTE": ""}):
        told = run_python("-c", _OPAQUE, env=fleet.environment("next", **settings))
        assert told == "compiled bytes None\n"


def test_threads_share_one_answer_each(filled: Fleet) -> None:
    """Threads that ask at the same time all get it, and compile nothing."""
    assert compiled(filled.run("next", cuda_job(1, threads=8), **filled.trusting())) == [0]


def test_a_forked_child_asks_by_itself(filled: Fleet) -> None:
    """A child of a program with earlier requests gets its own hit, and sends its compiles."""
    settings = {**filled.trusting(), **filled.signing()}
    outcomes = filled.run("next", cuda_job(1), cuda_job(2, forked=True), cuda_job(3, forked=True), **settings)
    assert compiled(outcomes)[:2] == [0, 0]
    assert len(filled.objects()) == 3


class _Slow(SimpleHTTPRequestHandler):
    """Serves files, each after a second."""

    def do_GET(self) -> None:
        threading.Event().wait(1)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


def test_the_time_of_a_compile_elsewhere_does_not_bound_the_wait(filled: Fleet) -> None:
    """The machine that compiled may have been idle; this one asks until the store is too slow for it."""
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Slow, directory=filled.store))
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{serving.server_port}"
        settings = {"GPUCACHE_REMOTE": url, **filled.trusting()}
        outcomes = filled.run("next", cuda_job(1), cuda_job(2), **settings)
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()
    assert compiled(outcomes) == [0, 0]


@pytest.fixture(name="silent")
def _silent() -> Iterator[Silent]:
    with Silent() as server:
        yield server


@pytest.mark.parametrize("url", ["oci://{}/team", "http://{}/cache"])
def test_a_store_that_does_not_answer_is_left_after_one_request(
    fleet: Fleet, silent: Silent, url: str
) -> None:
    """The programs are compiled; one warning names the store and the variable; the process ends."""
    settings = {"GPUCACHE_REMOTE": url.format(silent.address), "GPUCACHE_REMOTE_TIMEOUT_MS": "300"}
    settings.update({name: str(value) for name, value in (fleet.signing() | fleet.trusting()).items()})
    outcomes = fleet.run("next", cuda_job(1), cuda_job(2), cuda_job(3), **settings)
    assert compiled(outcomes) == [1, 1, 1]
    [line] = warnings(outcomes)
    assert silent.address in line
    assert len(silent.connections) <= 2  # one for each key of one request


def test_a_store_that_takes_nothing_holds_no_program(fleet: Fleet, silent: Silent) -> None:
    """Sending to a silent store is given up, and the process ends."""
    settings = {"GPUCACHE_REMOTE": f"oci://{silent.address}/team", "GPUCACHE_REMOTE_TIMEOUT_MS": "300"}
    outcomes = fleet.run("next", cuda_job(1), cuda_job(2), **settings, **fleet.signing())
    assert compiled(outcomes) == [1, 1]
    [line] = warnings(outcomes)
    assert silent.address in line


_DEAD: Mapping[str, str] = {
    "nobody listens": "http://127.0.0.1:1/cache",
    "no such host": "https://gpucache.invalid/cache",
    "unknown scheme": "gopher://host/cache",
    "no address": "http://",
    "not a directory": "/dev/null/cache",
}


@pytest.mark.parametrize("name", _DEAD)
def test_a_store_that_is_not_there_is_one_warning_at_most(fleet: Fleet, name: str) -> None:
    """Whatever is wrong with the address, the programs are compiled."""
    settings = {"GPUCACHE_REMOTE": _DEAD[name], **fleet.signing(), **fleet.trusting()}
    outcomes = fleet.run("next", cuda_job(1), cuda_job(2), **settings)
    assert compiled(outcomes) == [1, 1]
    assert len(warnings(outcomes)) == 1


def test_sixteen_programs_with_empty_roots_compile_nothing(filled: Fleet) -> None:
    """All of them ask one store at once."""
    programs = [filled.start(f"root-{number}", **filled.trusting()) for number in range(16)]
    outcomes = [filled.finish(program, cuda_job(1), cuda_job(2)) for program in programs]
    assert [compiled(one) for one in outcomes] == [[0, 0]] * 16


def test_sixteen_programs_that_compile_send_each_entry_once(fleet: Fleet) -> None:
    """The others leave the first one's object unchanged, and none fails."""
    settings = {**fleet.signing(), **fleet.trusting()}
    fleet.store.mkdir()
    programs = [fleet.start(f"root-{number}", **settings) for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda program: fleet.finish(program, cuda_job(1)), programs))
    assert all(compiled(one) in ([0], [1]) for one in outcomes)
    assert [line for one in outcomes for line in warnings(one)] == []
    assert len(fleet.objects()) == 1
    assert fleet.gpucache("root-0", "verify").returncode == 0


@pytest.mark.parametrize("platform", [PLATFORM, "Intel"])
def test_opencl_programs_hit_what_another_machine_made(
    tmp_path: Path, opencl_environment: Mapping[str, str], platform: str
) -> None:
    """With a compiler that gives its binary at once, and with one whose binaries warm makes."""
    need_pocl() if platform == PLATFORM else None
    fleet = Fleet(tmp_path)
    fleet.others()
    source = "kernel void show(global int *out) { out[get_global_id(0)] = 7; }"
    job = {"source": source, "platform": platform, "launches": [[1, 1]]}
    common = {"library": "opencl", "env": opencl_environment}
    fleet.run("maker", job, **common, **fleet.signing(), **fleet.trusting())
    if platform == PLATFORM:
        done = fleet.gpucache(
            "maker",
            "warm",
            "--misses",
            **{**fleet.signing(), **fleet.trusting()},
            OCL_ICD_VENDORS=opencl_environment["OCL_ICD_VENDORS"],
        )
        assert done.returncode == 0, done.stderr
    assert fleet.objects()
    [outcome] = fleet.run("next", job, **common, **fleet.trusting())
    assert (outcome["compiled"], outcome["values"]) == (0, [[7]])
    assert " in remote" in outcome["log"][0]
