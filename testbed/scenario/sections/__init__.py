"""The sections of a scenario beside its topology, each as frozen models."""
