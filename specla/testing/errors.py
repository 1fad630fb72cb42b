"""What a failed check says."""

from __future__ import annotations


class ConformanceError(AssertionError):
    """Something under test breaks its contract. The message names the check, what was expected,
    what was found instead and what to do; the parts are attributes too."""

    def __init__(self, check: str, *, expected: str, found: str, remedy: str) -> None:
        self.check, self.expected, self.found, self.remedy = check, expected, found, remedy
        super().__init__(f"[{check}] expected {expected}; found {found}. {remedy}")


class NotApplicable(Exception):  # noqa: N818 - no error: the reason why a check has nothing to say
    """Raised by a check that can't be made here; its text is the reason."""
