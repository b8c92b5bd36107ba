"""Simulated against emulated."""

# %% [markdown]
# # How good is the prediction?
# The same scenario and seed, once in virtual time, once as real processes. Emulation needs Mininet and the rights to
# make network namespaces; without them this notebook compares with a run on loopback, which has no WAN: then only the
# mathematics can be compared.

# %%
import shutil
import subprocess

from analysis.load import Run
from analysis.metrics import accuracy_curve, simulation_errors
from analysis.notebooks.runs import run
from analysis.timeline import trace


def emulated() -> Run | None:
    """The emulated run, or ``None`` where this machine cannot do it."""
    if shutil.which("mn") is None:
        return None
    try:
        return run("pair-emulated", on="emulate")
    except subprocess.CalledProcessError as error:
        if error.returncode != 3:  # 3: the machine cannot; anything else is a failure worth seeing
            raise
        return None


simulated, real = run("pair-simulated"), emulated()
other = real or run("pair-local", on="local")
print("compared with:", other.plan["back_end"])

# %% [markdown]
# ## The same mathematics
# Synchronous algorithms end with the same bits in all worlds.

# %%
assert simulated.result and other.result
assert simulated.result["parameters_sha256"] == other.result["parameters_sha256"]
assert accuracy_curve(simulated)["accuracy"].tolist() == accuracy_curve(other)["accuracy"].tolist()

# %% [markdown]
# ## The error in time

# %%
errors = simulation_errors([simulated, other])
for error in errors:
    print(
        f"simulated {error['simulated_s']:.4f} s, emulated {error['emulated_s']:.4f} s a round: {error['error']:+.1%}"
    )
assert bool(errors) == (real is not None)

# %% [markdown]
# ## Side by side
# Both timelines in one trace, training starting at the same moment; open it at ui.perfetto.dev.

# %%
events = trace([simulated, other])["traceEvents"]
print(len(events), "events")
