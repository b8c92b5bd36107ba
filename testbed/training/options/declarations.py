"""What models, data sets, splits and optimizers declare about themselves. Imports no torch."""

from __future__ import annotations

from typing import Any, ClassVar

IMAGES = "images"
TEXT = "text"
RECORDS = "records"
SCRIPT = "script"
NOTHING = "none"
PROGRAM = "program"
TRACE = "trace"
OWN_JOBS = (PROGRAM, SCRIPT, TRACE)  # the testbed neither reads the samples of such a job nor builds its model
UNKNOWN_MODEL_BYTES = 1 << 28


class ModelDeclarations:
    """What a model declares.

    takes        the samples that the model needs: ``images``, ``text`` or ``records`` (of categories). Other values:
                 ``none``, if only the sizes of the model are known; ``script``, if a user's script brings model and
                 data; ``program``, if a user's program does; ``trace``, if the job is known from a trace
    tables       whether the model has embedding tables: of these parameters, a batch needs only the rows that it
                 looks up
    of_workload  whether the model follows from the scenario's ``workload``, so that scenarios cannot name it
    call_s       the part of a training step's duration that does not depend on the batch, on the reference machine of
                 ``testbed.execution.capacity``
    """

    takes: ClassVar[str] = IMAGES
    tables: ClassVar[bool] = False
    of_workload: ClassVar[bool] = False
    call_s: ClassVar[float] = 0.3e-3

    @classmethod
    def size_bound_bytes(cls, options: Any) -> int:
        """Return an upper bound of the parameters' size in bytes as float32. Deadlines are derived from it.

        The bound assumes samples of a usual size; ``parameters_bound`` takes the samples' actual shape.
        """
        return UNKNOWN_MODEL_BYTES

    @classmethod
    def misfit(cls, options: Any, shape: tuple[int, ...]) -> str:
        """Return why the model cannot take samples of this shape, and the cure; or an empty string if it can."""
        return ""

    @classmethod
    def parameters_bound(cls, options: Any, shape: tuple[int, ...], classes: int) -> int:
        """Return an upper bound of the number of parameters for this shape of samples and number of classes.

        Return 0 if no bound is known. The testbed uses the larger of this bound and ``size_bound_bytes``.
        """
        return 0

    @classmethod
    def multiplications(cls, options: Any, shape: tuple[int, ...], classes: int) -> int:
        """Estimate the multiplications in the forward pass of one sample; by default, one for each parameter."""
        return cls.parameters_bound(options, shape, classes)


class DataDeclarations:
    """What a data set declares.

    gives        the kind of its samples, one of the values of ``ModelDeclarations.takes``
    of_workload  whether the data set follows from the scenario's ``workload``, so that scenarios cannot name it
    """

    gives: ClassVar[str] = IMAGES
    of_workload: ClassVar[bool] = False

    @classmethod
    def sample_bound(cls, options: Any) -> tuple[tuple[int, ...], int] | None:
        """Return upper bounds of the shape of a sample and of the number of classes, or ``None`` if unknown."""
        return None

    @classmethod
    def training_samples(cls, options: Any) -> int | None:
        """Return the number of training samples, or ``None`` if it is known only after loading."""
        return getattr(options, "train_samples", 0) or None


class SplitDeclarations:
    """What a split declares.

    equal          whether every worker gets a sample as soon as there are as many samples as workers
    needs_classes  whether the split uses classes, so that each sample must have a class
    """

    equal: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False


class OptimizerDeclarations:
    """What an optimizer declares.

    whole_tensors  whether a step needs the whole tensor (for its norm, say) and cannot work on a slice
    by_shape       whether the optimizer is given the shape of each tensor; a step then needs the whole tensor
    by_norms       whether the norms of the tensor and of its gradient are all that a step needs beside its slice
    needs_backups  whether a step needs the values that the sender of the gradient last pulled (delay compensation)
    scale_free     whether multiplying all gradients by a constant leaves the steps as they are
    """

    whole_tensors: ClassVar[bool] = False
    by_shape: ClassVar[bool] = False
    by_norms: ClassVar[bool] = False
    needs_backups: ClassVar[bool] = False
    scale_free: ClassVar[bool] = False

    @classmethod
    def rests(cls, options: Any) -> bool:
        """Return whether an element whose gradient is zero keeps its value under these options."""
        return False
