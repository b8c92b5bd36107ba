"""Techniques as a user writes them: each one file, which imports nothing but the base class of its axis."""
