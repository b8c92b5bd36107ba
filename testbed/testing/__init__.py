"""The conformance kit: the checks that every technique of an axis passes, shipped or from outside.

One module per axis holds plain functions that take a ``Subject`` and raise ``CheckFailed``. ``testbed check`` runs them
on a technique, and the tests of the shipped techniques call the same functions. Random cases are drawn from fixed
seeds. ``catalogue`` lists the checks of each axis, ``training`` trains in the virtual world and in real processes.
"""
