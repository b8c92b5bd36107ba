"""Global settings of torch: the same in every process of a run, also in a process of the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def settings_of_a_run() -> Iterator[None]:
    """Set torch as in a new process with one thread; restore it afterwards, as this may be a user's process."""
    threads = torch.get_num_threads()
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    torch.set_num_threads(1)  # sums must not depend on the number of threads
    torch.set_default_dtype(torch.float32)
    try:
        with device, torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # the scenario says which
            torch.use_deterministic_algorithms(deterministic)
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
