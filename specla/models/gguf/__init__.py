"""GGUF files: metadata and memory-mapped tensors.

`GgufFile.open` is the way in. The header is parsed here with every length checked against the
file before it is used, so a damaged or hostile file costs one error line and no memory; block
sizes and dequantisation come from the `gguf` package.
"""

from specla.models.gguf.file import GgufFile
from specla.models.gguf.tensor import TensorSource

__all__ = ["GgufFile", "TensorSource"]
