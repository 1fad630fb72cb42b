"""Check the GPU code of all kernels for all targets, without a GPU; exit 1 if any rule is broken.

    python tools/gpu_audit.py           check, print the table
    python tools/gpu_audit.py --write   and put the table into docs/gpu-code.md

Needs the extra ``triton``. The rules are in tests/ptx/rules.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gpu-code.md"


def main() -> int:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    from ptx.audit import audit, default_launches, page_with, table

    findings = []
    for one in audit(default_launches()):
        findings.append(one)
        for problem in one.problems:
            print(f"{one.kernel} ({one.constants}) {one.target}: {problem}", file=sys.stderr)
    print(table(findings))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), findings), encoding="utf-8")
    return 1 if any(one.problems for one in findings) else 0


if __name__ == "__main__":
    raise SystemExit(main())
