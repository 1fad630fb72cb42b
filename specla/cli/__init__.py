"""The `specla` command: one module per subcommand, imported only when it runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``argv`` defaults to the process's own.

    0 done; 1 the check found a difference; 2 bad input; 70 a defect of specla; 130 interrupted;
    141 the reader of standard output went away. Errors are one line on standard error each.
    """
    from specla.cli.outcome import exit_code_of

    def run() -> int:
        from specla.cli.app import run_app

        return run_app(argv)

    return exit_code_of(run)
