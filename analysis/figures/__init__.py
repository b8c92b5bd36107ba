"""Figures. Functions take runs and return a matplotlib ``Figure``; nothing here uses the global state of pyplot."""
