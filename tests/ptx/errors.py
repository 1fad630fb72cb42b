"""What can go wrong in the emulator."""

from __future__ import annotations


class PtxError(Exception):
    """The program does something that would be a fault or undefined on a GPU."""


class UnsupportedError(PtxError):
    """The emulator does not model this, on purpose or not yet."""
