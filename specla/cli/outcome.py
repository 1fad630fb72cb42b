"""How a run ends: exceptions to exit codes, and one line on standard error at most."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

from specla.errors import SpeclaError

DONE, DIFFERENT, BAD_INPUT, DEFECT, INTERRUPTED, NO_READER = 0, 1, 2, 70, 130, 141
"""Exit codes. 70 is EX_SOFTWARE, 130 and 141 what a shell shows for SIGINT and SIGPIPE."""

TRACEBACK = "SPECLA_TRACEBACK"
"""Environment variable: anything but empty or 0 shows the traceback of every error."""


class DifferenceError(SpeclaError):
    """The check of one run found a difference; ends the run with exit code 1."""


def exit_code_of(run: Callable[[], int]) -> int:
    """``run()``'s exit code, or the one that stands for the exception it raised."""
    try:
        code = run()
        # a reader that went away shows up at the last flush; not at exit, where it can't be caught
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except BaseException as error:
        return _told(error)


def _told(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _let_go_of_stdout()
        return NO_READER
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    code, message = _explain(error)
    tell(f"specla: error: {message}")
    return code


def _explain(error: BaseException) -> tuple[int, str]:
    if isinstance(error, DifferenceError):
        return DIFFERENT, str(error)
    if isinstance(error, SpeclaError):
        return BAD_INPUT, str(error)
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return BAD_INPUT, f"not enough memory{detail}; use a smaller --ctx, --budget or model"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return BAD_INPUT, f"{where}{error.strerror or error}"
    kind = type(error).__name__
    return DEFECT, (
        f"internal error, a defect of specla: {kind}: {error}; set {TRACEBACK}=1 for the traceback"
    )


def tell(message: str) -> None:
    """One line on standard error, whatever the message holds; lost if nobody listens."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(one_line(message) + "\n")
        sys.stderr.flush()


def one_line(message: str) -> str:
    """White space as single blanks, other control characters and lone surrogates escaped."""
    text = " ".join(message.split())
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _let_go_of_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush can't fail."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
