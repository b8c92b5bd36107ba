"""The settings of a run, each declared once (``testbed.declaration``): a scenario's sections, and parts of the Plan."""
