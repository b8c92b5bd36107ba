"""Comparing algorithms."""

# %% [markdown]
# # Comparing algorithms
# One scenario, one setting changed at a time. The first run is the base of the speed-up.

# %%
from analysis.compare import as_latex, comparison
from analysis.figures.compare import draw
from analysis.notebooks.runs import run

LOCAL = "optimizer={kind: sgd, learning_rate: 0.1, at: worker}"
VARIANTS = {
    "fsa": (),
    "hfa": ("sync={kind: hfa, k1: 5, k2: 2}", LOCAL),
    "esync": ("sync=esync", LOCAL),
    "p3": ("order=p3",),
    "fp16": ("codec=fp16",),
    "bisparse": ("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.05, pull_ratio: 0.05}}",),
}
runs = [run(name, *settings) for name, settings in VARIANTS.items()]

# %%
rows = comparison(runs)
for row in rows:
    print(f"{row['label']:28} {row['round_time_s'] * 1000:8.1f} ms a round {row['wan_bytes'] / 1e6:8.3f} MB by WAN")
assert rows[4]["wan_bytes"] * 2 == rows[0]["wan_bytes"]  # FP16 halves every tensor, both ways

# %% [markdown]
# ## For a paper
# A table for booktabs, and a figure in which every technique has the look that it has everywhere.

# %%
print(as_latex(rows))
figure = draw(runs, target=None)
