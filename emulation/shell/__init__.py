"""The shell over an emulated network: commands that look at it, change it, and run programs in its nodes."""
