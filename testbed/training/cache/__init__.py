"""Levels of a data cache: decoded samples in memory, encoded ones on disk. What is not here comes from farther away."""
