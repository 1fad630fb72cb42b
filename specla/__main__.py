"""`python -m specla` is the `specla` command."""

import sys

from specla.cli import main

sys.exit(main())
