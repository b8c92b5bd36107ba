"""The tables of a run: the kinds of events in each table, and every column with its unit and meaning.

Times are seconds since the run's start, on the run's clock. Training starts at the ``train`` event (table
``training``). ``node`` is the writer of the event. Start-up messages (declare, init, first pull) have ``round`` -1.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT = "float"
INTEGER = "integer"
TEXT = "text"
FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``field`` is its name in the event; it is empty if ``testbed.results.tables`` derives the column."""

    name: str
    field: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of all events of these kinds, one event per row."""

    kinds: tuple[str, ...]
    columns: tuple[Column, ...]


_NODE = Column("node", "", TEXT, "", "writer of the event")
_T = Column("t_s", "t", FLOAT, "s", "time of the event, or its end")
_T0 = Column("t0_s", "t0", FLOAT, "s", "its begin")
_DURATION = Column("duration_s", "", FLOAT, "s", "t_s - t0_s")
_SPAN = (_NODE, _T0, _T, _DURATION)
_ROUND = Column("round", "round", INTEGER, "", "training round; -1: none")

TABLES: dict[str, Table] = {
    "nodes": Table(
        ("start",),
        (
            _NODE,
            _T,
            Column("role", "role", TEXT, "", "worker, server, global_server, replica or scheduler"),
            Column("data_center", "data_center", TEXT, "", "data centre of the node"),
            Column("pid", "pid", INTEGER, "", "process, in its own namespace"),
            Column("stands_for", "stands_for", INTEGER, "", "number of equal nodes that it represents; null: itself"),
        ),
    ),
    "training": Table(
        ("train",),
        (
            _NODE,
            _T,
            Column("rounds", "rounds", INTEGER, "rounds", "maximum"),
            Column("workers", "workers", INTEGER, "", "number of workers that contribute"),
            Column("resumed_round", "resumed_round", INTEGER, "", "of the checkpoint that it begins with; null: none"),
            Column("trained_s", "trained_s", FLOAT, "s", "of training before that checkpoint"),
        ),
    ),
    "rounds": Table(
        ("round",),
        (
            *_SPAN,
            _ROUND,
            Column("loss", "loss", FLOAT, "", "mean training loss of the worker's steps"),
            Column("samples", "samples", INTEGER, "", "in these steps; null: the program does not say"),
            Column("steps", "steps", INTEGER, "", "training steps done; null: one"),
            Column(
                "waited_s", "waited_s", FLOAT, "s", "time that servers and relays held its push, waiting for others"
            ),
            Column("learning_rates", "learning_rates", TEXT, "", "of a script's optimizer, by group of parameters"),
        ),
    ),
    "stages": Table(
        ("stage",),
        (
            _NODE,
            _T,
            Column("stage", "stage", INTEGER, "", "number of the part of the model that a worker of a pipeline holds"),
            Column("segments", "segments", TEXT, "", "first and last segment of each of its chunks"),
            Column("tasks", "tasks", TEXT, "", "what it computes, in order: F0 is micro-batch 0 forward, B backward"),
            Column("held", "held", INTEGER, "", "micro-batches of a chunk whose activations it holds at most"),
            Column("memory_bytes", "memory_bytes", INTEGER, "B", "parameters, gradients, optimizer and activations"),
        ),
    ),
    "predicted": Table(
        ("predicted",),
        (
            Column("worker", "worker", TEXT, "", "whose round is predicted"),
            _T0,
            Column("t_s", "end", FLOAT, "s", "its end, in virtual time"),
            _ROUND,
        ),
    ),
    "transfers": Table(
        ("transfer",),
        (
            *_SPAN,
            _ROUND,
            Column("source", "source", TEXT, "", "sender"),
            Column("target", "target", TEXT, "", "receiver"),
            Column("message", "message", TEXT, "", "kind of message, as testbed.messages.MessageKind"),
            Column("key", "key", INTEGER, "", "index of the tensor or slice; -1: none"),
            Column("payload_bytes", "payload_bytes", INTEGER, "B", "tensors"),
            Column("header_bytes", "header_bytes", INTEGER, "B", "all other bytes of the frame"),
            Column("tier", "tier", TEXT, "", "lan or wan"),
        ),
    ),
    "computes": Table(
        ("compute",),
        (
            *_SPAN,
            _ROUND,
            Column("work", "work", TEXT, "", "kind of work, as testbed.world.Work"),
            Column("part", "part", TEXT, "", "part of a step that runs segment by segment, e.g. forward 2"),
            Column("modelled_s", "modelled_s", FLOAT, "s", "duration by the device model"),
            Column("real_s", "real_s", FLOAT, "s", "duration of the computation itself"),
            Column(
                "overrun", "overrun", FLAG, "", "it took longer than modelled: the computation, or the wait for a core"
            ),
        ),
    ),
    "loads": Table(
        ("load",),
        (
            *_SPAN,
            _ROUND,
            Column("step", "step", INTEGER, "", "number of the batch"),
            Column("waited_s", "waited_s", FLOAT, "s", "time that the step waited for it"),
            Column("memory", "memory", INTEGER, "samples", "found decoded in memory since the last batch"),
            Column("disk", "disk", INTEGER, "samples", "read from the disk"),
            Column("neighbour", "neighbour", INTEGER, "samples", "received from a worker of the same data centre"),
            Column("remote", "remote", INTEGER, "samples", "fetched from the source"),
        ),
    ),
    "waits": Table(
        ("wait",),
        (
            *_SPAN,
            Column("waiting_for", "waiting_for", TEXT, "", "the wait's name"),
        ),
    ),
    "updates": Table(
        ("update",),
        (
            _NODE,
            _T,
            _ROUND,
            Column("key", "key", INTEGER, "", "index of the tensor or slice"),
            Column("version", "version", INTEGER, "", "updates of this key so far"),
            Column("member", "member", TEXT, "", "whose contribution it applied; null: those of several"),
            Column("staleness", "staleness", INTEGER, "", "updates since the value that its gradient was computed at"),
        ),
    ),
    "blocks": Table(
        ("blocks",),
        (
            _NODE,
            _T,
            _ROUND,
            Column("source", "source", TEXT, "", "sender of a contribution of which parts go as datagrams"),
            Column("key", "key", INTEGER, "", "index of the tensor or slice"),
            Column("sent", "sent", INTEGER, "blocks", "sent of it, by connection or as datagrams"),
            Column("delivered", "delivered", INTEGER, "blocks", "that were there when it was applied"),
            Column("late", "late", INTEGER, "blocks", "that came afterwards"),
            Column("lost", "lost", INTEGER, "blocks", "that never came"),
            Column("resent", "resent", INTEGER, "blocks", "sent again by connection"),
        ),
    ),
    "holds": Table(
        ("held",),
        (
            _NODE,
            _T,
            _ROUND,
            Column("member", "member", TEXT, "", "sender of the push that was held"),
            Column("held_s", "held_s", FLOAT, "s", "duration"),
            Column("by", "by", TEXT, "", "member that it was held for"),
        ),
    ),
    "accuracy": Table(
        ("evaluate",),
        (
            _NODE,
            _T,
            _ROUND,
            Column("snapshot_t_s", "snapshot_t", FLOAT, "s", "when the evaluated values were copied"),
            Column("accuracy", "accuracy", FLOAT, "1", "share of the test set classified correctly"),
            Column("loss", "loss", FLOAT, "", "mean loss on the test set"),
            Column("chance", "chance", FLOAT, "1", "accuracy of always guessing the most frequent label"),
        ),
    ),
    "finals": Table(
        ("final",),
        (
            _NODE,
            _T,
            Column("role", "role", TEXT, "", "worker, server, global_server, replica or scheduler"),
            Column("rounds", "rounds", INTEGER, "rounds", "completed rounds"),
            Column("parameters_sha256", "parameters_sha256", TEXT, "", "digest of the values it holds"),
            Column(
                "keys_sha256", "keys_sha256", TEXT, "", "of a stage: key in the whole model, and its values' digest"
            ),
            Column("not_finite", "not_finite", INTEGER, "elements", "of these values, NaN or infinite; null: none"),
            Column("cpu_s", "cpu_s", FLOAT, "s", "processor time of its process since its role began"),
        ),
    ),
    "processes": Table(
        ("process",),
        (
            _NODE,
            _T,
            Column("cpu_s", "cpu_s", FLOAT, "s", "processor time of its process so far"),
        ),
    ),
    "interfaces": Table(
        ("interface",),
        (
            _NODE,
            _T,
            Column("sent_bytes", "sent_bytes", INTEGER, "B", "left the node since its program began, with headers"),
            Column("received_bytes", "received_bytes", INTEGER, "B", "arrived at it, likewise"),
        ),
    ),
    "links": Table(
        ("link",),
        (
            _T,
            Column("link", "link", TEXT, "", "directed WAN link"),
            Column("configured_bps", "configured_bps", FLOAT, "bit/s", "rate that is set at the sample"),
            Column(
                "highest_bps", "highest_bps", FLOAT, "bit/s", "highest one since the sample before (emulated links)"
            ),
            Column("achieved_bps", "", FLOAT, "bit/s", "mean rate since the sample before"),
            Column("interval_s", "", FLOAT, "s", "time since the sample before"),
            Column("bytes", "bytes", INTEGER, "B", "sent so far"),
            Column("dropped_packets", "dropped_packets", INTEGER, "", "dropped by its queue or lost on the way so far"),
            Column("backlog_bytes", "backlog_bytes", INTEGER, "B", "queued at the sample"),
            Column("busy_s", "busy_s", FLOAT, "s", "time so far with packets surely queued (emulated links only)"),
            Column("busy_bytes", "busy_bytes", INTEGER, "B", "sent in that time"),
            Column(
                "busy_possible_bytes", "busy_possible_bytes", INTEGER, "B", "what the configured rate allowed in it"
            ),
        ),
    ),
    "probes": Table(
        ("probe",),
        (
            _T,
            Column("link", "link", TEXT, "", "directed WAN link, before training (emulated links only)"),
            Column("configured_bps", "configured_bps", FLOAT, "bit/s", "rate that is set at the sample"),
            Column("bytes", "bytes", INTEGER, "B", "sent since it was made, what it is measured with included"),
            Column("dropped_packets", "dropped_packets", INTEGER, "", "dropped by its queue or lost on the way so far"),
            Column("backlog_bytes", "backlog_bytes", INTEGER, "B", "queued at the sample"),
        ),
    ),
    "measured": Table(
        ("measured",),
        (
            _T,
            Column("link", "link", TEXT, "", "directed WAN link, if it is one link"),
            Column("path", "path", TEXT, "", "pair of data centres, if it is a path"),
            Column("what", "what", TEXT, "", "rate (bit/s) or rtt (s)"),
            Column("planned", "planned", FLOAT, "as what", "by the Plan"),
            Column("measured", "measured", FLOAT, "as what", "before training"),
            Column("tolerance", "tolerance", FLOAT, "as what", "allowed difference, up or down"),
            Column("ok", "ok", FLAG, "", "within tolerance"),
        ),
    ),
    "paths": Table(
        ("path",),
        (
            _NODE,
            _T,
            Column("path", "path", TEXT, "", "pair of data centres of a deployment"),
            Column("when", "when", TEXT, "", "before, during or after training; during: one connection, at its end"),
            Column("rtt_s", "rtt_s", FLOAT, "s", "round-trip time: median, or smoothed by TCP"),
            Column("min_rtt_s", "min_rtt_s", FLOAT, "s", "the least one"),
            Column("rate_bps", "rate_bps", FLOAT, "bit/s", "payload that a measuring connection carried; null: during"),
            Column("loss", "loss", FLOAT, "1", "share of packets that were sent again"),
            Column("packets", "packets", INTEGER, "", "sent"),
            Column("failed", "failed", TEXT, "", "why nothing was measured"),
        ),
    ),
    "replay": Table(
        ("replay",),
        (
            _T,
            Column("link", "link", TEXT, "", "directed WAN link"),
            Column("planned_t_s", "planned_t", FLOAT, "s", "planned time of the change"),
            Column("late_s", "late_s", FLOAT, "s", "delay of the change"),
            Column("what", "what", TEXT, "", "rate_bps, delay_s or loss"),
            Column("value", "value", FLOAT, "as what", "the new value"),
        ),
    ),
    "faults": Table(
        ("fault", "restart", "epoch"),
        (
            _NODE,
            _T,
            Column("kind", "kind", TEXT, "", "fault, restart or epoch"),
            Column("fault", "fault", TEXT, "", "kind of the fault, as in the scenario"),
            Column("targets", "targets", TEXT, "", "affected nodes or links; of an epoch: nodes that left or joined"),
            Column("begins", "begins", FLAG, "", "false: it ends"),
            Column("planned_t_s", "planned_t", FLOAT, "s", "planned time"),
            Column("late_s", "late_s", FLOAT, "s", "delay"),
            Column("number", "number", INTEGER, "", "of the membership epoch, or restarts so far"),
            Column("message", "message", TEXT, "", "cause"),
        ),
    ),
    "machine": Table(
        ("machine",),
        (
            _NODE,
            _T,
            Column("busy_share", "busy_share", FLOAT, "1", "share of the time of the run's cores that was busy"),
            Column("steal_share", "steal_share", FLOAT, "1", "share that the hypervisor took (steal time)"),
        ),
    ),
    "warnings": Table(
        ("warning", "error"),
        (
            _NODE,
            _T,
            Column("kind", "kind", TEXT, "", "warning or error"),
            Column("message", "message", TEXT, "", "what, where and how to cure it"),
            Column("cause", "cause", TEXT, "", "of an error; doubt, of what a simulation says against its prediction"),
        ),
    ),
}
