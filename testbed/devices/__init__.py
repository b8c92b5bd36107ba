"""GPUs: which there are, who computes on which, and how tensors reach them and come back."""
