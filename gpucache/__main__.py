"""``python -m gpucache``."""

import sys

from gpucache.cli import main

if __name__ == "__main__":
    sys.exit(main())
