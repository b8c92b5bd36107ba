"""Makes tables, metrics, figures and reports from run directories, and reads nothing else."""
