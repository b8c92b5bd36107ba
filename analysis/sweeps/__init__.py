"""From the runs of a sweep to a conclusion: points, the base of each comparison, sentences, tables."""
