"""A user's training script as a worker."""
