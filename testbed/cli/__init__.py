"""The command ``testbed``: one file per verb; a verb imports what is heavy only when it is executed."""
