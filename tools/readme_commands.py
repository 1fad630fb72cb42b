"""Print the shell block of README.md that follows the marker ``<!-- ci: NAME -->``.

    bash -euo pipefail -c "$(python tools/readme_commands.py test)"

So continuous integration runs the README's commands as they are written there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def block(name: str) -> str:
    """The commands behind a marker. Raises SystemExit when there is none."""
    pattern = rf"<!-- ci: {re.escape(name)} -->\s*```bash\n(.*?)```"
    found = re.search(pattern, README.read_text(encoding="utf-8"), flags=re.DOTALL)
    if found is None:
        raise SystemExit(f"README.md has no block marked 'ci: {name}'")
    return found.group(1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: readme_commands.py NAME")
    print(block(sys.argv[1]), end="")
