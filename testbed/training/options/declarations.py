"""What models, data sets, optimizers and ways of loading declare of themselves; free of torch."""

from __future__ import annotations

from typing import Any, ClassVar

IMAGES = "images"
TEXT = "text"
RECORDS = "records"
SCRIPT = "script"
NOTHING = "none"
PROGRAM = "program"
TRACE = "trace"
OWN_JOBS = (PROGRAM, SCRIPT, TRACE)  # of which this project reads no samples, and builds no model
UNKNOWN_MODEL_BYTES = 1 << 28


class ModelDeclarations:
    """``takes``: the samples that the model is for.

    ``images``, ``text`` or ``records`` (of categories); ``script``: a user's script brings model and data; ``none``: it
    has sizes only; ``program``: a user's program, of which nothing is known; ``trace``: a job's trace.

    ``tables``: it has embedding tables, parameters of which a batch needs the rows alone that it looks up.

    ``of_workload``: a scenario does not name it; it follows from its ``workload``.

    ``call_s``: what a training step takes apart from its samples, on the reference machine of
    ``testbed.execution.capacity``.
    """

    takes: ClassVar[str] = IMAGES
    tables: ClassVar[bool] = False
    of_workload: ClassVar[bool] = False
    call_s: ClassVar[float] = 0.3e-3

    @classmethod
    def size_bound_bytes(cls, options: Any) -> int:
        """Return an upper bound of the parameters' size as float32, from which deadlines are derived.

        It assumes samples of usual size. ``parameters_bound`` takes their shape.
        """
        return UNKNOWN_MODEL_BYTES

    @classmethod
    def misfit(cls, options: Any, shape: tuple[int, ...]) -> str:
        """Return why the model is not for samples of this shape, and the cure; empty if it is."""
        return ""

    @classmethod
    def parameters_bound(cls, options: Any, shape: tuple[int, ...], classes: int) -> int:
        """Return an upper bound of the number of parameters for samples of this shape, and so many classes.

        0 where none is known; the larger one of both bounds counts.
        """
        return 0

    @classmethod
    def multiplications(cls, options: Any, shape: tuple[int, ...], classes: int) -> int:
        """Return about how many multiplications the forward pass of a sample takes: at least one for each parameter."""
        return cls.parameters_bound(options, shape, classes)


class DataDeclarations:
    """``gives``: the samples of the data set, as in ``ModelDeclarations.takes``. ``of_workload``: as there."""

    gives: ClassVar[str] = IMAGES
    of_workload: ClassVar[bool] = False

    @classmethod
    def sample_bound(cls, options: Any) -> tuple[tuple[int, ...], int] | None:
        """Return the shape of a sample and the number of classes, or larger ones; ``None``: unknown."""
        return None

    @classmethod
    def training_samples(cls, options: Any) -> int | None:
        """Return the number of training samples, where the options tell; ``None``: loading will tell."""
        return getattr(options, "train_samples", 0) or None


class SplitDeclarations:
    """``equal``: every worker has a sample where there are as many samples as workers.

    ``needs_classes``: it is by class, of which each sample has one.
    """

    equal: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False


class OptimizerDeclarations:
    """``whole_tensors``: a step needs the whole tensor (its norm), not a slice of it.

    ``by_shape``: it receives the shape of each tensor, and a step needs the whole tensor.

    ``by_norms``: of the whole tensor a step needs no more than its norm and that of its gradient.

    ``needs_backups``: a step needs what the sender of the gradient last pulled (delay compensation).

    ``scale_free``: a gradient twice as long makes the same step.
    """

    whole_tensors: ClassVar[bool] = False
    by_shape: ClassVar[bool] = False
    by_norms: ClassVar[bool] = False
    needs_backups: ClassVar[bool] = False
    scale_free: ClassVar[bool] = False

    @classmethod
    def rests(cls, options: Any) -> bool:
        """Return whether with these options an element whose gradient is zero stays as it is."""
        return False
