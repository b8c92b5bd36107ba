"""Mechanics of reading: from YAML text to validated values, with places and suggestions. Knows no section."""
