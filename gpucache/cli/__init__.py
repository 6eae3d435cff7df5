"""The command line: one file per verb. Parse, call, render, exit code; nothing else.

Must not load a GPU stack, numpy or rich to show help: every verb imports what it needs when it runs.
Owns the way in, which imports nothing before it is ready for Ctrl-C.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. An interrupt ends it in one sentence from its first moment on."""
    try:
        from gpucache.cli.entry import main as run

        return run(arguments)
    except KeyboardInterrupt:  # while modules were imported, or before or after the verb
        from gpucache import interrupts

        interrupts.disarm()
        from gpucache.cli import streams
        from gpucache.cli.entry import interrupted

        streams.complain("")  # the terminal wrote ^C on this line
        return interrupted(sys.argv[1:] if arguments is None else arguments)
    finally:
        if arguments is None:
            from gpucache import interrupts

            interrupts.ignore()
