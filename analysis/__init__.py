"""Run directories in, frames, metrics and figures out. Reads nothing but run directories."""
