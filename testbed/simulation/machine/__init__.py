"""Shared by ``packets`` and ``flows``: runs functions on records of numbers, in Python or compiled, with the clock."""
