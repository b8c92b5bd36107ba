"""Codecs and selectors."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit, instead

BITS = ("tests/codec/test_bits.py",)
GEOMX, SELECTORS = ("tests/codec/test_geomx.py",), ("tests/codec/test_selectors.py",)
CHANGES = ("tests/codec/test_changes.py",)
ROWS = ("tests/codec/test_rows.py",)
VALUES = ("tests/codec/test_value_states.py",)
MUTATIONS: dict[str, Mutation] = {
    "an end that follows another forgets what was sent": Mutation(
        "testbed.codec.pull:DifferencePull.follow_value",
        edit("self._mirrors[wire_key].index_copy_", "torch.tensor([0.0]).repeat(size).index_copy_"),
        VALUES,
    ),
    "all ends are in one state": Mutation("testbed.codec.pull:DifferencePull.value_state", always(0), VALUES),
    "a changed first value is the same one": Mutation(
        "testbed.codec.pull:_Sent.__eq__", edit(" and self._version == other._version", ""), VALUES
    ),
    "ends of a checkpoint are in states of their own": Mutation("testbed.codec.pull:_digest", always(None), VALUES),
    "to follow a value that travels as it is takes work": Mutation(
        "testbed.engine.coding:follow_value", edit("is None:", "is ...:"), VALUES
    ),
    "each value is encoded for each child": Mutation(
        "testbed.engine.server:Server._reply", edit("if state is not None:", "if False:"), VALUES
    ),
    "tables come with zeros in the rows that were not asked for": Mutation(
        "testbed.codec.rows:TableCodec.decode_value", edit("self._held.clone()", "torch.zeros(size)"), ROWS
    ),
    "a server asks for the rows of one child": Mutation(
        "testbed.codec.rows:asked_by", edit("torch.cat(asked)", "asked[0]"), ROWS
    ),
    "models lose what a codec keeps back": Mutation(
        "testbed.codec.changes:ChangesCodec.decode", edit(" + self._milestones[wire_key] * self._weight", ""), CHANGES
    ),
    "milestones stay at the first values": Mutation(
        "testbed.codec.changes:ChangesCodec.encode_value", edit("self._milestones[wire_key] = value", "pass"), CHANGES
    ),
    "changes of models get momentum": Mutation(
        "testbed.codec.sparse:_momentum", edit("None if at.changes else ", ""), CHANGES
    ),
    "none sends half of the elements as zeros": Mutation(
        "testbed.codec.none:NoneCodec.encode",
        edit("tensor.contiguous()", "tensor.round(decimals=1)"),
        ("tests/codec/test_contract.py",),
    ),
    "the compiled sweep forgets the residual": Mutation(
        "testbed.codec.selectors.sources:Feedback.operands",
        edit("self._residual[part]", "self._residual[part].copy()"),
        SELECTORS,
    ),
    "the compiled sweep keeps no velocity": Mutation(
        "testbed.codec.selectors.sources:Momentum.operands",
        edit("self._velocity[part]", "self._velocity[part].copy()"),
        SELECTORS,
    ),
    "the compiled sweep's last elements are left out": Mutation(
        "testbed.codec.selectors.sweep:_compiled_sweep",
        edit("return found[: count + last.size]", "return found[:count]"),
        SELECTORS,
    ),
    "zeros are partitioned": Mutation(
        "testbed.codec.selectors.sources:positions_of_largest", edit("bits[bits >= smallest]", "bits"), SELECTORS
    ),
    "decoded tensors keep what was in their memory": Mutation(
        "testbed.codec.pairs:scatter", edit("tensor.zero_()", "tensor"), ("tests/codec/test_pairs.py",)
    ),
    "FP16 sends infinities": Mutation("testbed.codec.fp16:_check_range", always(None), GEOMX),
    "2-bit forgets its residual": Mutation(
        "testbed.codec.twobit:TwoBitCodec.encode", edit("if gradient is None", "if True"), GEOMX
    ),
    "2-bit sends nothing at the threshold itself": Mutation(
        "testbed.codec.twobit:TwoBitCodec._encode_block", edit("float(self._below)", "self._threshold"), BITS
    ),
    "4-bit mixes up odd and even elements": Mutation(
        "testbed.codec.fourbit:encode",
        edit("both & 0xF | both >> 28 & 0xF0", "both << 4 & 0xF0 | both >> 32 & 0xF"),
        BITS,
    ),
    "MSTopK counts only what it dropped": Mutation(
        "testbed.codec.selectors.mstopk:PublishedMsTopk._search",
        edit("flatnonzero(reached)", "flatnonzero(~reached)"),
        BITS,
    ),
    "2-bit accepts impossible codes": Mutation("testbed.codec.twobit:_check_codes", always(None), GEOMX),
    "Bi-Sparse keeps the momentum of what it sent": Mutation(
        "testbed.codec.memory:HostMemory.take", edit("self._velocity[chosen] = 0", "pass"), GEOMX
    ),
    "error feedback sends twice": Mutation(
        "testbed.codec.memory:HostMemory.take",
        edit("self._unsent[chosen] = 0", "pass"),
        (*GEOMX, "tests/codec/test_contract.py"),
    ),
    "a NaN that is clipped spoils all elements": Mutation(
        "testbed.codec.sparse:_clipped", edit("if norm > max_norm", "if not norm <= max_norm"), GEOMX
    ),
    "bad numbers that are found are left in place": Mutation(
        "testbed.codec.selectors.sources:check_finite", edit("raise NonFinite(int(", "print(int("), GEOMX
    ),
    "DGC does not clip": Mutation("testbed.codec.sparse:_clipped", edit("if max_norm == math.inf:", "if True:"), GEOMX),
    "DGC does not warm up": Mutation(
        "testbed.codec.sparse:WarmUp.ratio",
        edit("min(round_ // self._stage_rounds, self._stages)", "self._stages"),
        GEOMX,
    ),
    "MPQ sends large keys in float16": Mutation(
        "testbed.codec.sparse:BySize._for", edit("size >= self._bound", "False"), GEOMX
    ),
    "small keys are sparse": Mutation("testbed.codec.sparse:BySize._for", edit("size >= self._bound", "True"), GEOMX),
    "MSTopK leaves out the k-th magnitude": Mutation(
        "testbed.codec.selectors.sweep:_collect",
        edit("(np.flatnonzero(bits == bound) + start)[:k]", "np.empty(0, np.int64)"),
        SELECTORS,
    ),
    "ties are chosen from the end": Mutation(
        "testbed.codec.selectors.sweep:_collect",
        edit("np.concatenate(equal)[: k - larger.size]", "np.concatenate(equal)[::-1][: k - larger.size]"),
        SELECTORS,
    ),
    "random-k draws the same each time": Mutation(
        "testbed.codec.selectors.chance:RandomK.draw",
        edit("self._random.choice(", "np.random.default_rng(0).choice("),
        SELECTORS,
    ),
    "top-k drops the last entry": Mutation(
        "testbed.codec.pairs:entries",
        edit("max(1, int(size * ratio + ROUNDING))", "max(1, int(size * ratio) - 1)"),
        GEOMX,
    ),
    "4-bit decodes to the edge of a bin": Mutation(
        "testbed.codec.fourbit:decode", edit(".float() + 0.5", ".float() + 0.0"), ("tests/codec/test_fourbit.py",)
    ),
    "differences: the mirror is not updated": Mutation(
        "testbed.codec.pull:DifferencePull.encode_value",
        edit("mirror[indices] = values", "pass"),
        GEOMX,
    ),
    "sparse sums are cut": Mutation(
        "testbed.codec.pull:SparseSumPull.encode_value",
        edit("np.flatnonzero(numbers_of(value))", "np.flatnonzero(numbers_of(value))[:1]"),
        GEOMX,
    ),
    "modelled sums have the entries of a warm-up's first round for ever": Mutation(
        "testbed.codec.pull:SparseSumPull.on_contribution", edit("self._counts[wire_key] = count", "pass"), GEOMX
    ),
    "a share of elements is rounded down": Mutation(
        "testbed.codec.pairs:ROUNDING", instead(0.0), ("tests/codec/test_pairs.py", *GEOMX)
    ),
}
