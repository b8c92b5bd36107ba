"""Mechanisms broken one by one: each has a test of the default suite that then fails, or the tests prove nothing."""
