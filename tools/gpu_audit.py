"""Check the GPU code of all kernels for all targets, without a GPU; exit 1 if any rule is broken.

    python tools/gpu_audit.py           check, print the table
    python tools/gpu_audit.py --write   and put the table into docs/gpu-sizes.md

Needs the extra ``triton``. The rules are in tests/ptx/rules.py.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gpu-sizes.md"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check the GPU code of all kernels for eight GPUs of NVIDIA and AMD, without a "
        "GPU. Takes a quarter of an hour the first time; Triton keeps what it compiled."
    )
    parser.add_argument(
        "--write", action="store_true", help="Put the table into docs/gpu-sizes.md."
    )
    write = parser.parse_args().write
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            parser.error(f"{package} is not installed; docs/gpu.md says how to, without a GPU, too")
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    from ptx.audit import audit, default_launches, page_with, table
    from ptx.compile import TARGETS

    findings, launches = [], default_launches()
    for one in audit(launches):
        findings.append(one)
        if sys.stderr.isatty():
            done, of = len(findings), len(launches) * len(TARGETS)
            print(f"\r{done}/{of}", end="\r", file=sys.stderr, flush=True)
        for problem in one.problems:
            print(f"{one.kernel} ({one.constants}) {one.target}: {problem}", file=sys.stderr)
    print(table(findings))
    if write:
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), findings), encoding="utf-8")
    return 1 if any(one.problems for one in findings) else 0


if __name__ == "__main__":
    raise SystemExit(main())
