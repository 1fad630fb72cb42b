"""A backend with one family of kernels changed: what the comparison must notice."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from specla.backends.triton.backend import TritonBackend


def mutated(folder: Path, module: str, family: str, old: str, new: str) -> TritonBackend:
    """On host tensors, with ``old`` replaced by ``new`` in a module of specla.backends.triton.

    family: the class there whose methods launch its kernels. folder: for the changed file, which
    Triton reads its functions' source from.
    """
    text = Path(str(import_module(f"specla.backends.triton.{module}").__file__)).read_text("utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{old!r} occurs {text.count(old)} times in {module}.py")
    file = folder / f"mutated_{module}.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    changed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(changed)
    kind: Any = type("Mutant", (getattr(changed, family), TritonBackend), {})
    backend: TritonBackend = kind(torch.device("cpu"))
    return backend
