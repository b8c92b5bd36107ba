"""One thread: bits depend on the number of threads, and the machine is shared."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
