"""The GPU backend with the text of one of its modules changed: what a comparison must notice."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

import specla.backends.triton
from specla.backends.triton.backend import TritonBackend

PACKAGE = Path(specla.backends.triton.__file__).parent


def changed_backend(folder: Path, module: str, family: str, old: str, new: str) -> TritonBackend:
    """On host tensors, with ``old``, which must occur once, replaced by ``new`` in a module.

    family: the class there whose methods launch its kernels. folder: for the changed file, which
    Triton reads its functions' source from.
    """
    source = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise ValueError(f"{module} has {source.count(old)} times, not once: {old!r}")
    path = folder / f"changed_{module}.py"
    path.write_text(source.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    changed = importlib.util.module_from_spec(spec)
    # a dataclass looks its module up
    sys.modules[path.stem] = changed
    try:
        spec.loader.exec_module(changed)
    finally:
        del sys.modules[path.stem]
    kind: Any = type("Changed", (getattr(changed, family), TritonBackend), {})
    backend: TritonBackend = kind(torch.device("cpu"))
    return backend
