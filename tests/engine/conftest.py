"""One thread for torch, as every node of a run has: how sums are split decides about their last bits."""

import torch

torch.set_num_threads(1)
