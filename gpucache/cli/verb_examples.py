"""Examples of every verb and the words it answers with, as its manual page shows them.

Each example is one command that works where the files it names are there; the tests hold that.
"""

from dataclasses import dataclass

from gpucache.answers.bench import BenchVerdict
from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.run import RunResult
from gpucache.answers.warm import WarmResult


@dataclass(frozen=True, slots=True)
class Example:
    """What somebody wants, and the command for it."""

    wish: str
    command: str


EXAMPLES = {
    "devices": (
        Example("The targets of this machine:", "gpucache devices"),
        Example("Keep what this machine is, to ask elsewhere what would hit here:",
                "gpucache devices --save node.json"),
        Example("What keeps two machines from sharing entries:",
                "gpucache devices --compare node.json other.json"),
    ),
    "warm": (
        Example("Try it, with the programs that come with gpucache:", "gpucache warm --example"),
        Example(
            "All programs of a folder, for PoCL and for a GPU that is not here:",
            "gpucache warm kernels/ --target opencl:pocl --target cuda:sm_90",
        ),
        Example("What a manifest lists, into a cache that goes into an image:",
                "gpucache --root image/cache warm --shared --manifest gpucache.toml"),
        Example("Stop a deployment (exit 3) if anything would be compiled:",
                "gpucache warm --check --manifest gpucache.toml"),
        Example("The same for another machine:",
                "gpucache warm --check kernels/ --device-profile node.json"),
        Example("What a command had compiled elsewhere, for this machine's devices:",
                "gpucache warm --recording recording"),
        Example("Fill every cache that a program uses, below one folder:",
                "gpucache warm --into caches -- python app.py"),
    ),
    "inspect": (
        Example("Every cache on this machine, and the last misses:", "gpucache inspect"),
        Example("The entries of one program, with all key fields if it is one entry:",
                "gpucache inspect saxpy.cl --target opencl:pocl"),
        Example("Would it hit if it were built like this, and if not why?",
                "gpucache inspect --why kernels/saxpy.cl --target opencl:pocl -D N=8"),
        Example("The misses of the last hour:", "gpucache inspect --misses --since 1h"),
        Example("The cubin of an entry, for other tools:",
                "gpucache inspect scale.cu --target cuda:sm_90 --extract scale.cubin"),
        Example("What a command had compiled:", "gpucache inspect --recording recording"),
        Example("What PoCL keeps:", "gpucache inspect --cache pocl --list"),
    ),
    "verify": (
        Example("Is everything in the cache what it says it is?", "gpucache verify"),
        Example("Take what is wrong out of the way:", "gpucache verify --repair"),
        Example("Compile the entries of one program again, and compare:",
                "gpucache verify scale.cu --rebuild"),
        Example("Every cache on this machine, for a script:", "gpucache --json verify --cache all"),
    ),
    "evict": (
        Example("What would go if the cache were bounded to 2 GiB:",
                "gpucache evict --max-size 2GiB --dry-run"),
        Example("What was not used for a month and is out of date:",
                "gpucache evict --older-than 30d --stale"),
        Example("The entries of one program for one target:",
                "gpucache evict --program scale.cu --target cuda:sm_90"),
        Example("Bound another system's cache, by that system's rules:",
                "gpucache evict --cache pocl --max-size 500M"),
        Example("Everything:", "gpucache evict --all --yes"),
    ),
    "run": (
        Example("A program that nobody changed, with what it compiles from the cache:",
                "gpucache run -- ffmpeg -i in.mp4 -vf avgblur_opencl out.mp4"),
        Example("With PoCL: what this run launched is built after its end, and the next run hits:",
                "gpucache run --learn -- python app.py"),
        Example("What every build was, for a machine to read:",
                "gpucache run --report builds.json -- python app.py"),
    ),
    "record": (
        Example("What a program compiles; a further run adds to it:",
                "gpucache record -o recording -- python app.py"),
        Example("Built on another machine, into a cache that goes into an image:",
                "gpucache --root image/cache warm --shared --recording recording"),
        Example("Names and digests alone, enough to ask a machine whether it has everything:",
                "gpucache record -o digests --digests-only -- python app.py"),
        Example("The question there:", "gpucache warm --check --recording digests"),
    ),
    "bench": (
        Example("Starts of a program with nothing cached, and with everything cached:",
                "gpucache bench kernels/saxpy.cl --target opencl:pocl --local-size 64"),
        Example("The same of any command, with the figures kept:",
                "gpucache bench --runs 10 --export starts.svg -- python app.py"),
        Example("A test that fails (exit 3) unless a warm start is surely twice as fast:",
                "gpucache bench --fail-below 2 --manifest gpucache.toml"),
        Example("Beside cuda.core's own cache:",
                "gpucache bench scale.cu --target cuda:sm_90 --against cuda.core"),
        Example("What checks inside kernels cost on PoCL:", "gpucache bench --checks --target opencl:pocl"),
    ),
    "export": (
        Example("A cache file for a Futhark program on another machine, with what the program dumped:",
                "gpucache export futhark foo.cache foo.cu --target cuda:sm_86"),
        Example("One rocFFT database of several nodes':", "gpucache export rocfft all.db node1.db node2.db"),
        Example("The same as an image for rocfft_cache_deserialize:",
                "gpucache export rocfft-image all.image all.db"),
        Example("What a service compiles, for an image in which it will lie in /opt/layer:",
                "gpucache export layer layer --at /opt/layer -- ./service --check"),
    ),
}  # fmt: skip
"""By verb, in the order of what people want first."""

Word = WarmResult | RunResult | Verdict | FindingKind | BenchVerdict
WORDS: dict[str, tuple[str, dict[Word, str]]] = {
    "warm": (
        "RESULTS",
        {
            WarmResult.HIT: "It was there.",
            WarmResult.BUILT: "It was compiled and kept.",
            WarmResult.FAILED: "It could not be compiled or kept; the reason follows.",
            WarmResult.MISSING: "With --check: it is not there; the reason follows.",
            WarmResult.SKIPPED: "Nothing here compiles it, or no key can be made for it.",
            WarmResult.POISONED: "Its compiler crashed or hung twice before; --retry tries it again.",
            WarmResult.INTERRUPTED: "The run was stopped before it.",
        },
    ),
    "inspect": (
        "VERDICTS",
        {
            Verdict.NEVER_BUILT: "Nothing was built under this name.",
            Verdict.KEY_CHANGED: "A header, define, option, driver, compiler or variable differs from the "
            "nearest entry; it is named with both values.",
            Verdict.INCOMPLETE: "It is there, and not compiled for a local size; programs hit it, and "
            "compile once more at their first launch with that size.",
            Verdict.EVICTED: "It was there: when it went, and by which rule.",
            Verdict.CORRUPT: "It was there, and its bytes were damaged.",
            Verdict.REJECTED: "The driver refused the binary, and the program was compiled again.",
            Verdict.POISONED: "Its compiler crashed or hung twice in warm.",
            Verdict.NOT_CONSULTED: "The cache is disabled or cannot be read, or another one was asked.",
            Verdict.UNCACHEABLE: "No exact key can be made for it; why, and what to do.",
            Verdict.OPAQUE_KEY: "It was asked for through ProgramCache, by a key that tells nothing.",
            Verdict.NOT_RECORDED: "The record of earlier builds was lost.",
        },
    ),
    "verify": (
        "FINDINGS",
        {
            FindingKind.TRUNCATED: "The file ends too early.",
            FindingKind.CORRUPT: "Its bytes are not those that were written.",
            FindingKind.MISPLACED: "It lies where another key belongs.",
            FindingKind.MISLABELLED: "Its bytes are not what its description says.",
            FindingKind.UNTRUSTED: "Somebody else could have written it, or it is a link.",
            FindingKind.STALE: "Nothing here finds it: its device has another driver or compiler, its "
            "interpreter is gone, or a newer version of what made it came and it was not used since, "
            "nor for a week.",
            FindingKind.SUPERSEDED: "There is a newer entry for the same program, target and options.",
            FindingKind.ORPHAN: "One half of a pair of files, or a record without its entry.",
            FindingKind.LEFTOVER: "A file that a writer left behind.",
            FindingKind.LOCKED: "A lock that nobody holds.",
            FindingKind.UNSUPPORTED: "It was written by a newer version, or is of a kind that is not known.",
        },
    ),
    "run": (
        "RESULTS",
        {
            RunResult.HIT: "It was served from the cache.",
            RunResult.KEPT: "It missed, was compiled by the command, and was kept.",
            RunResult.NOTED: "It missed; --learn or warm --misses builds it for the next run.",
            RunResult.LEFT: "It missed and was not kept; the reason follows.",
            RunResult.FAILED: "It missed and did not compile, as without gpucache.",
            RunResult.PASSED: "Its call or its device is not one that is served; the reason follows.",
            RunResult.REFUSED: "It missed and was made to fail, as GPUCACHE_REQUIRE is set.",
        },
    ),
    "bench": (
        "VERDICTS",
        {
            BenchVerdict.FASTER: "Warm starts are faster: the whole interval of the ratio is above 1.",
            BenchVerdict.NO_DIFFERENCE: "They are not; how large a difference would have shown follows.",
            BenchVerdict.UNDECIDED: "There are too few pairs to tell.",
            BenchVerdict.DEGRADED: "The figures do not say what they seem to say; the reason follows.",
            BenchVerdict.FAILED: "A start failed; the reason follows.",
        },
    ),
}
"""The words of a verb's answers, each with its meaning, by verb and under their heading."""
