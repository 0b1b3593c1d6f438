"""How a tensor is looked at: by kernels where they can, else by operations of torch, and by either alone in a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from otel_ml._internal.devices.cuda_thread import CAPTURING
from otel_ml.diagnostics.inspection.inspected_tensor import InspectedTensor
from otel_ml.diagnostics.tensor_statistics.copy_to_host import Blocks, CopyToHost
from otel_ml.diagnostics.tensor_statistics.kernel_compilation import are_compiled, compile_now
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import SUMMARY, Job, kind_of, needs
from otel_ml.diagnostics.tensor_statistics.tensor_batches import SeenTensor, TensorBatches
from otel_ml.diagnostics.tensor_statistics.tensor_tables import KINDS, is_plain
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = ["KernelsOrOperations"]


class KernelsOrOperations:
    """Looks at watched tensors as they come by, and brings what kernels have found once a step.

    Args:
        watched: a tensor's place among them is its owner.
    """

    def __init__(self, watched: Sequence[InspectedTensor]) -> None:
        self._watched = watched
        self._by_stream: dict[tuple[int, int], TensorBatches] = {}
        self._jobs: dict[tuple[tuple[Job, ...], ...], tuple[Job, ...]] = {}
        self._compiled: set[tuple[Any, int, tuple[Job, ...]]] = set()

    def prepare(self, parameters: Iterable[Any]) -> None:
        """Compile kernels for tensors like these while a program sets up; it takes seconds the first time."""
        kinds = {(each.device, each.dtype) for each in parameters if each.device.type == "cuda"}
        jobs = dict.fromkeys(job for watched in self._watched for job in watched.jobs)
        for device, dtype in kinds if jobs else ():
            name = str(dtype).removeprefix("torch.")
            if name in KINDS:
                compile_now(device, [*needs(jobs, KINDS.index(name), device)])

    def look(self, owners: Sequence[int], tensor: Any, *, stays: bool, is_kept: bool) -> None:
        """Look at a tensor now, or, where nobody changes it until `launch()`, together with others.

        Args:
            owners: who watches it.
            tensor: of one micro-batch.
            stays: whether nobody changes it.
            is_kept: whether training keeps its memory until then anyway.

        Raises:
            RuntimeError: a CUDA graph is being captured: what is launched now is done at each replay, not now.
        """
        import torch

        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(CAPTURING)
        watched = [self._watched[owner] for owner in owners]
        jobs = self._jobs_of(watched) if tensor.is_cuda else ()
        given = self._given(watched, jobs, tensor) if jobs else None
        if given is None:
            for each in watched:
                self._look_by_operations(each, tensor)
            return
        for each in watched:
            each.is_sighted = bool(each.jobs)
        # One whose tensor was written over once is looked at at the call from then on.
        waits = stays and all(each.may_wait for each in watched)
        self._tell(self._here(given).see(given, jobs, owners, stays=waits, is_kept=is_kept))
        for each in watched:
            if each.has_rest:
                each.add_rest(tensor)

    @never_raises
    def _look_by_operations(self, watched: InspectedTensor, tensor: Any) -> None:
        if not watched.is_sighted:
            watched.add(tensor)
        elif tensor.numel():
            raise TypeError(f"{watched.rule.tensor} of {watched.layer!r} is of several kinds in one step")

    def launch(self) -> None:
        """Look at all that waits."""
        for sightings in self._by_stream.values():
            self._tell(sightings.launch())

    def take(self) -> list[tuple[CopyToHost, list[SeenTensor]]]:
        """Return what was seen since the last time, and the arrivals of what was found of it."""
        self.launch()
        return [found for sightings in self._by_stream.values() for found in sightings.take()]

    def forget(self) -> None:
        """Forget what was seen since the last time."""
        for sightings in self._by_stream.values():
            sightings.forget()

    def _given(self, watched: list[InspectedTensor], jobs: tuple[Job, ...], tensor: Any) -> Any:
        """Return what kernels look at, or None where they do not."""
        import torch

        if not tensor.numel() or any(each.is_looked_at_by_operations for each in watched):
            return None
        if not is_plain(tensor) or (not tensor.is_contiguous() and any(job.width for job in jobs)):
            with torch.no_grad():
                # Elements of one byte, as of float8, are only stored: kernels compute with wider ones.
                tensor = (tensor if tensor.element_size() > 1 else tensor.float()).contiguous()
        return tensor if is_plain(tensor) and self._can(tensor, jobs) else None

    def _jobs_of(self, watched: list[InspectedTensor]) -> tuple[Job, ...]:
        """Return what is to be found for any of them, a summary first."""
        if len(watched) == 1:
            return watched[0].jobs
        key = tuple(each.jobs for each in watched)
        found = self._jobs.get(key)
        if found is None:
            every = dict.fromkeys(job for jobs in key for job in jobs)
            # False sorts before True, so SUMMARY comes first: others use what it has found.
            found = self._jobs[key] = tuple(sorted(every, key=SUMMARY.__ne__))
        return found

    def _can(self, tensor: Any, jobs: tuple[Job, ...]) -> bool:
        key = tensor.device, kind_of(tensor), jobs
        # Until a kernel is compiled, in the background, operations of torch look.
        if key not in self._compiled and are_compiled(tensor.device, [*needs(jobs, key[1], tensor.device)]):
            self._compiled.add(key)
        return key in self._compiled

    def _here(self, tensor: Any) -> TensorBatches:
        import torch

        # By stream: a kernel sees a tensor as it is there, and not what another stream has still to write.
        stream = torch.cuda.current_stream(tensor.device)
        key = tensor.device.index, stream.cuda_stream
        found = self._by_stream.get(key)
        if found is None:
            found = self._by_stream[key] = TensorBatches(stream, Blocks())
        return found

    def _tell(self, lost: Iterable[int]) -> None:
        for owner in lost:
            watched = self._watched[owner]
            watched.may_wait, watched.is_lost = False, True
            reporter.drop(
                "overwritten", _OVERWRITTEN.format(watched.rule.tensor, watched.layer), len(watched.rule.stats)
            )


_OVERWRITTEN = (
    "The {} of {!r} was written over, which autograd does not allow before a backward pass: its statistics of this "
    "step are lost (overwritten). From now on they are computed at the call."
)
