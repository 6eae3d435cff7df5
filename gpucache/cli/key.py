"""``gpucache key``: a pair of keys, which signs entries and identifies trusted signers."""

from pathlib import Path

import click

from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import PathName, flag
from gpucache.cli.usage import VerbCommand


@click.command(cls=VerbCommand)
@click.argument("file", metavar="FILE", type=PathName(dir_okay=False))
@flag("--public", "Make nothing; print the public key of the secret key in FILE.")
@global_options
def key(file: Path, public: bool) -> None:
    """Make a pair of keys: the secret one in FILE, for its owner alone, the public one in FILE.pub.

    The public key is printed as a line. push signs with the file that --key or GPUCACHE_SIGNING_KEY names;
    pull accepts entries signed by the keys that GPUCACHE_TRUSTED_KEYS lists, as such lines or as .pub files,
    separated by spaces. A key that is taken out of that list is revoked.

    Without this command, a push to a directory makes a key of your own in the user's configuration. Your own
    programs and pulls trust it; other machines need its line in GPUCACHE_TRUSTED_KEYS.
    """
    from gpucache.remote.signing import load_signing_key, make_pair

    made = load_signing_key(file).public if public else make_pair(file)
    files = [] if public else [str(file), f"{file}.pub"]
    given().answer(
        "key", [], {"name": made.name, "public": made.text, "id": made.id, "files": files}, [made.text]
    )
    if not public:
        given().say(
            f"Sign with GPUCACHE_SIGNING_KEY={file.absolute()} on machines that push, and keep it secret.",
            f'Set GPUCACHE_TRUSTED_KEYS="{made.text}" on machines that pull.',
        )
