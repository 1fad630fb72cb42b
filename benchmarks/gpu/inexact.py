"""specla's own recurrence with what the contract forbids: free sums and fused multiply-adds.

The module's source text is changed and loaded a second time, so that everything else is the same
kernel: what it is faster by is the price of exactness.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gpu.launching import changed

SUM = re.compile(r"\bhalves_of_rows\((.+), [^,()]+, [^,()]+\)")


def free_text(text: str) -> str:
    """The module's text with sums whose order is the compiler's choice.

    Raises RuntimeError where there is none to replace, or one that isn't understood: then the two
    would be one kernel.
    """
    changed_text, count = SUM.subn(r"tl.sum(\1, 0)", text)
    if not count or "halves_of_rows(" in changed_text:
        raise RuntimeError(
            f"{count} sums of gdn.py were replaced, and not all calls of halves_of_rows are of the "
            f"known form: name the sums that are to be freed in inexact.py"
        )
    return changed_text


@contextmanager
def free_module() -> Iterator[ModuleType]:
    """A second copy of specla/backends/triton/gdn.py, changed. Its file stays until the end: the
    compiler reads it."""
    from specla.backends.triton import gdn

    text = free_text(Path(gdn.__file__).read_text(encoding="utf-8"))
    name = "specla_gdn_with_free_sums"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise RuntimeError(f"{path} is no module")
        module = importlib.util.module_from_spec(spec)
        # the interpreter and the compiler look the kernels' module up by name
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            sys.modules.pop(name, None)


@contextmanager
def free_backend(device: Any) -> Iterator[Any]:
    """The GPU backend with these kernels in place of its own; fusion is allowed in the block that
    ``fused`` opens."""
    from specla.backends.triton.backend import TritonBackend

    with free_module() as module:
        kind = type("FreeBackend", (module.DeltaRule, TritonBackend), {})
        yield kind(device)


def fused() -> Any:
    """A block in which the compiler may contract a product and a sum into one rounding."""
    return changed(enable_fp_fusion=True)
