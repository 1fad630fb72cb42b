"""`python -m specla.cli`: the command without an installed script."""

from __future__ import annotations

import sys

from specla.cli import main

if __name__ == "__main__":
    sys.exit(main())
