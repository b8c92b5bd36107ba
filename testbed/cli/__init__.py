"""The command ``testbed``: one module per verb, which imports heavy packages only when it is executed."""
