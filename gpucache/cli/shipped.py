"""Compiled files that ``inspect`` and ``verify`` are given in the place of entries."""

from pathlib import Path

from gpucache.cli.caches import is_store
from gpucache.cli.globals import given, leave
from gpucache.errors import ExitCode, UsageError


def show_files(verb: str, what: tuple[str, ...], profile: Path | None = None) -> bool:
    """Show the compiled files that are named; exits 3 if one is damaged or has no code for a device of the
    profile. Raises UsageError, also for a file that is missing or of another kind."""
    from gpucache.engine.shipped import is_shipped, unread

    for word in what:
        if not is_store(word) and (why := unread(word)):
            raise UsageError(f"{word} {why}")
    if not all(map(is_shipped, what)):
        return False
    from gpucache.answers.shipped import ShippedSummary, shipped
    from gpucache.engine.shipped import read_shipped
    from gpucache.probe.profile import load_profile

    devices = load_profile(profile).devices if profile else ()
    found = [read_shipped(Path(word), devices) for word in what]
    unfit = sum(bool(one.lacks or one.damaged) for one in found)
    summary: ShippedSummary = {"files": len(found), "unfit": unfit}
    blocks = shipped(found, profile=profile is not None, verdict=verb == "verify")
    given().answer(verb, found, summary, blocks)
    leave(ExitCode.FINDINGS if unfit else ExitCode.DONE)
    return True
