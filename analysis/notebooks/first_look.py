"""First look at a run."""

# %% [markdown]
# # First look at a run
# A run directory explains itself. Everything in it is a tidy table with documented columns and units.

# %%
from analysis.breakdown import per_node
from analysis.figures.run import draw
from analysis.measures import MEASURES, measured
from analysis.metrics import accuracy_curve
from analysis.notebooks.runs import run
from testbed.results.columns import TABLES

first = run("first")
assert first.result is not None
print(first.result["accuracy"], "accuracy after", first.result["rounds"], "rounds")

# %% [markdown]
# ## What is in it
# Each table by name, and the unit of every column.

# %%
for name, table in TABLES.items():
    columns = ", ".join(f"{column.name} [{column.unit}]" if column.unit else column.name for column in table.columns)
    print(f"{name:10} {len(first.tables[name]):6} rows: {columns}")

# %% [markdown]
# ## Accuracy over time and over bytes

# %%
curve = accuracy_curve(first)
print(curve)
assert curve["accuracy"].iloc[-1] > curve["accuracy"].iloc[0]

# %% [markdown]
# ## Where the time of a round goes
# Every instant of a worker's round belongs to exactly one part, so the parts add up to the round.

# %%
split = per_node(first.tables)
print(split.round(4))
workers = split[split["role"] == "worker"]
parts = workers[["compute_s", "lan_s", "wan_s", "waiting_s"]].sum(axis=1)
assert abs(parts.mean() - first.result["round_time_s"]) < 1e-3

# %% [markdown]
# ## Every measure, with its unit

# %%
values = measured([first]).iloc[0]
for name, measure in MEASURES.items():
    print(f"{name:22} {values[name]!s:24} {measure.unit:10} {measure.meaning}")

# %% [markdown]
# ## The picture

# %%
figure = draw(first)
