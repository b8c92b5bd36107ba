"""The routines that golden values are computed with: those for AVX2, whatever else the processor has.

Each library chooses its routines by the processor that it finds, and adds up in another order with wider vectors. The
variables are read when a library is loaded, so they have to be set before Python starts. On a processor with AVX-512,
each of the first five was seen to change bits of its library alone: of a softmax, a convolution, a matrix product of
PyTorch, one of numpy, and a logarithm of numpy, in this order.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib import metadata
from pathlib import Path

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's own loops
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",  # MKL accepts AVX2 from Intel's processors only, and this one from all
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")


def restart_with_variables(module: str) -> None:
    """Replace this process by ``python -m module`` with the variables, unless it has them."""
    if any(os.environ.get(name) != value for name, value in VARIABLES.items()):
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **VARIABLES})


def missing_instructions() -> str:
    """Return what this processor lacks for these routines; empty if it has all."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return " and no ".join(name for name in ("avx2", "fma") if name not in flags)


def libraries() -> dict[str, str]:
    """Return the versions of the libraries, and the beginning of a SHA-256 of what they compute here."""
    return {**{name: metadata.version(name).partition("+")[0] for name in _PACKAGES}, "bits": _bits()}


def _bits() -> str:
    """Return a digest of some results of the libraries alone, without any code of the testbed."""
    import numpy as np
    import torch
    from torch.nn import functional

    numbers = torch.Generator().manual_seed(1)
    images = torch.randn(32, 8, 12, 12, generator=numbers)
    filters = torch.randn(16, 8, 5, 5, generator=numbers, requires_grad=True)
    weights = torch.randn(10, 16 * 8 * 8, generator=numbers, requires_grad=True)
    scores = functional.linear(functional.conv2d(images, filters).relu().flatten(1), weights)
    functional.cross_entropy(scores / 100, torch.arange(32) % 10).backward()
    array = images.numpy().reshape(32, -1).astype(np.float64)
    results = [scores.detach().numpy(), filters.grad.numpy(), weights.grad.numpy(), array @ array.T, np.log(array**2)]
    return hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest()[:16]
