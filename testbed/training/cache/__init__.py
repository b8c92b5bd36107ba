"""Levels of a data cache: decoded samples in memory, encoded ones on disk."""
