"""Watches the layers of a model through hooks, and records statistics of their tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from time import time_ns
from typing import Any

import otel_ml
from otel_ml._internal.record.append import append
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.definition import Series
from otel_ml._internal.steps.axes import is_inside_a_step
from otel_ml._internal.steps.step import step_for
from otel_ml.diagnostics.dynamics.shards import copies_of, held, rank_here, shards_of, world_size
from otel_ml.diagnostics.first_names import first_names
from otel_ml.diagnostics.inspection.config import Section, sections_of
from otel_ml.diagnostics.inspection.dump import Dump
from otel_ml.diagnostics.inspection.hooks import hook, hook_passes, hook_updates, is_called_again
from otel_ml.diagnostics.inspection.inspected_tensor import InspectedTensor, Own
from otel_ml.diagnostics.inspection.kernel_results import Findings, Held
from otel_ml.diagnostics.inspection.kernels_or_operations import KernelsOrOperations
from otel_ml.diagnostics.inspection.statistics import measure_of
from otel_ml.diagnostics.inspection.text_log import TextLog
from otel_ml.diagnostics.tensor_statistics import is_freed
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = ["Inspector"]

_OF_PARAMETERS = frozenset({"weight", "wgrad"})
"""Tensors that are looked at before they change, or when a step ends; the others are seen as they come by."""


class Inspector:
    """Records `inspect/<layer>/<tensor>/<statistic>` of the layers that a configuration names.

    Call `step()` at the end of every step: what micro-batches of the step showed is one value then. Nothing waits for
    the device, and no collective is made: ranks merge in the service.

    Weights, and their gradients, are those of the moment at which one of torch's optimizers is first about to change
    them: what the step's passes have used. Where there is no such optimizer they are those of the step's end. A pass
    without gradients counts only while the model has made none with them: validation is not mixed into training, and a
    model that generates is seen all the same.

    Args:
        model: a `torch.nn.Module`; its layers are `model.named_modules()`.
        config: the path of a YAML file, or a mapping in the form of NVIDIA's inspection tool.
        log_dir: where each rank appends a text log of its own statistics, and saves tensors of `DumpTensors`; by
            default nowhere.
        ranks: that have each of these layers, for norms of activations and gradients; by default all of
            torch.distributed's. With pipeline parallelism, those of one stage.
        rank: in the name of the text log; by default torch.distributed's.
        statistics: the user's own: name → (function of a tensor that returns a 0-d tensor, reduction across ranks and
            micro-batches).

    Raises:
        ConfigError: the configuration is wrong, tensors are to be saved without `log_dir`, a section fits no layer (the
            message names those there are), or a layer fits two sections; all in one message.

    Examples:
        ```python
        inspector = Inspector(model, "inspect.yaml", log_dir="logs")
        for batch in otel_ml.steps(loader):
            train(batch)
            inspector.step()
        inspector.close()
        ```
    """

    def __init__(
        self,
        model: Any,
        config: Mapping[str, Any] | str | PathLike[str],
        *,
        log_dir: str | PathLike[str] | None = None,
        ranks: int | None = None,
        rank: int | None = None,
        statistics: Own | None = None,
    ) -> None:
        self._own = dict(statistics or {})
        sections = sections_of(config, statistics=self._own)
        self._counted = 0
        self._called = 0  # the step in which a layer was called last
        self._has_learned = False
        self._is_learning = True  # in the newest pass through the model
        self._ranks = world_size() if ranks is None else ranks
        self._watched = list(self._chosen(model, sections))
        mine = rank_here() if rank is None else rank
        self._dump = self._dump_to(log_dir, mine)
        self._log = None if log_dir is None else TextLog(Path(log_dir), mine)
        self._looks = KernelsOrOperations(self._watched)
        self._looks.prepare(model.parameters())
        self._by_pass = self._grouped(lambda tensor: tensor not in _OF_PARAMETERS)
        self._of_weights = self._grouped(_OF_PARAMETERS.__contains__)
        self._schedules = {self._watched[place].rule.schedule for places in self._by_pass for place in places}
        self._schedules_of_all = {each.rule.schedule for each in self._watched}
        self._series: dict[tuple[str, str, str], Series | None] = {}
        self._is_compiled = self._is_passing = self._was_passed = False
        self._handles = [*self._hooks(model)]
        self._layer_handles: list[Any] = []
        self._listen()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that are inspected."""
        return tuple(dict.fromkeys(watched.layer for watched in self._watched))

    @never_raises
    def step(self) -> None:
        """End a step: record what it showed, and look at weights and gradients that no optimizer has come by."""
        index = self._step()
        # A program that sets its steps has them current; else this counts, and says which one it means.
        step = None if is_inside_a_step() else index
        if any(schedule.includes(index) for schedule in self._schedules_of_all):
            due = self._due(range(len(self._watched)), index)
            for places in self._of_weights:
                self._look_at_weights(self._due(places, index))
            self._record_found(due, index, step)
            for place in due:
                # All that is shown of it is in what `_record_found` has asked for.
                if self._watched[place].is_of_kernels:
                    self._watched[place].forget()
                else:
                    self._record(self._watched[place], index, step)
        # A program that sets no steps is counted on from the last one that it had.
        self._counted = index + 1
        if self._is_due(index + 1):
            self._listen()

    @never_raises
    def _record_found(self, due: list[int], index: int, step: int | None) -> None:
        """Record what kernels find, when it has arrived."""
        arrivals = self._looks.take()
        held = {place: self._how_held(place) for place in due if self._watched[place].is_whole}
        if not held or NOW.off:
            return
        # A record needs a series to stand in the buffer; `Findings.records()` has the series of each statistic.
        carrier = next((found for each in held.values() if (found := self._first_series(each.watched))), None)
        findings = Findings(arrivals, held, self._series_of, index, self._log)
        target = step_for(step, None, "record()", findings.size)
        if target is not None and carrier is not None:
            append((carrier, target, findings, time_ns()))

    @never_raises
    def _record(self, watched: InspectedTensor, index: int, step: int | None) -> None:
        """Record what operations showed of a tensor; one that cannot be looked at does not take the others with it."""
        copies, parts = self._held(watched)
        for name, value in watched.take(copies=copies, parts=parts):
            value.record(_name_of(watched, name), step)
            if self._log is not None:
                self._log.line(f"{watched.layer}_{watched.rule.tensor}_{name}", index, value.shown)
        if self._dump is not None:
            self._dump.save(watched.layer, watched.rule.tensor, index, watched.take_whole())

    def close(self) -> None:
        """Remove the hooks, and write what is left of the text log; a later `step()` records nothing."""
        for handle in (*self._handles, *self._layer_handles):
            handle.remove()
        self._handles, self._layer_handles, self._by_pass = [], [], []
        # With none of them no later `step()` looks at anything.
        self._schedules_of_all.clear()
        if self._log is not None:
            self._log.close()
        if self._dump is not None:
            self._dump.close()

    def _step(self) -> int:
        index = otel_ml.current_step()
        return index if index is not None and is_inside_a_step() else self._counted

    def _dump_to(self, log_dir: str | PathLike[str] | None, rank: int) -> Dump | None:
        if all(watched.rule.stats for watched in self._watched):
            return None
        if log_dir is None:
            raise ConfigError("inspection: DumpTensors needs a folder, and log_dir is not given. Pass log_dir=.")
        return Dump(Path(log_dir), rank)

    def _chosen(self, model: Any, sections: tuple[Section, ...]) -> Iterator[InspectedTensor]:
        layers = {name: module for name, module in model.named_modules() if name}
        problems = []
        taken: dict[str, str] = {}
        for section in sections:
            chosen = [name for name in layers if section.selects(name)]
            if not chosen:
                wanted = section.pattern if section.pattern is not None else list(section.types)
                problems.append(
                    f"inspection: {section.name}: {wanted!r} fits no layer. There are: {first_names(list(layers))}."
                )
            for name in chosen:
                if name in taken:
                    problems.append(
                        f"inspection: layer {name!r} is in {taken[name]!r} and in {section.name!r}. A layer belongs to "
                        "one section."
                    )
                # The first section keeps it, so that each further one is a problem.
                taken.setdefault(name, section.name)
        if problems:
            raise ConfigError(*problems)
        for section in sections:
            for name, module in layers.items():
                if taken.get(name) == section.name:
                    yield from (InspectedTensor(name, module, rule, self._own) for rule in section.rules)

    def _grouped(self, wanted: Callable[[str], bool]) -> list[list[int]]:
        """Return the places of what is watched of each tensor of each layer: it is looked at once for all rules."""
        found: dict[tuple[str, str], list[int]] = {}
        for place, each in enumerate(self._watched):
            if wanted(each.rule.tensor):
                found.setdefault((each.layer, each.rule.tensor), []).append(place)
        return [*found.values()]

    def _due(self, places: Iterable[int], index: int) -> list[int]:
        return [place for place in places if self._watched[place].rule.schedule.includes(index)]

    def _hooks(self, model: Any) -> Iterator[Any]:
        if self._by_pass:
            yield from hook_passes(model, self._begin_pass, self._end_pass)
        if self._of_weights:
            handle = hook_updates(self._look_before_update)
            # Torch keeps its list of such hooks for good: that of an inspector goes with the inspector.
            weakref.finalize(self, handle.remove)
            yield handle

    def _listen(self) -> None:
        if not self._layer_handles:
            self._layer_handles = [self._hook(places) for places in self._by_pass]

    def _is_due(self, index: int) -> bool:
        return any(schedule.includes(index) for schedule in self._schedules)

    def _begin_pass(self, has_gradients: bool) -> None:
        self._looks.launch()  # what a program that forgets `step()` has left
        self._is_learning = has_gradients
        if has_gradients and not self._has_learned:
            self._has_learned = True
            self._looks.forget()
            for watched in self._watched:  # what a first look whether validation works has shown
                watched.forget()
        self._is_passing = True
        if self._is_due(self._step()):
            self._listen()
        elif self._was_passed and not self._is_compiled:
            # A layer without a hook costs nothing. What is compiled keeps those that it was compiled with.
            for handle in self._layer_handles:
                handle.remove()
            self._layer_handles = []

    def _end_pass(self) -> None:
        self._is_passing = False
        self._was_passed = True
        self._looks.launch()

    def _hook(self, places: list[int]) -> Any:
        layer, kind = self._watched[places[0]].module, self._watched[places[0]].rule.tensor

        def saw(due: list[int], tensor: Any, stays: bool) -> None:
            if hasattr(tensor, "detach") and tensor.is_floating_point():
                # What autograd keeps is as it was until the backward pass, which begins after the model's forward one.
                stays = stays and (self._is_passing or kind != "activation")
                self._looks.look(due, held(tensor), stays=stays, is_kept=kind == "activation")

        def due_now(is_compiled: bool) -> list[int]:
            self._is_compiled |= is_compiled
            if not is_called_again():  # else perhaps on a thread of autograd's, where a block `step()` is not known
                self._called = self._step()
            return self._due(places, self._called) if self._is_counted() else []

        return hook(layer, kind, saw, due_now)

    def _is_counted(self) -> bool:
        import torch

        # The first pass of a reentrant checkpoint is without gradients, and a layer may be called without its model.
        return self._is_learning or not self._has_learned or torch.is_grad_enabled()

    def _look_before_update(self, updated: frozenset[int]) -> None:
        """See the weights that an optimizer is about to change, and their gradients."""
        index = self._step()
        if not any(schedule.includes(index) for schedule in self._schedules_of_all):
            return
        for places in self._of_weights:
            due = self._due(places, index)
            if not due:
                continue
            watched = self._watched[due[0]]
            weight: Any = getattr(watched.module, "weight", None)
            if id(weight) not in updated:
                continue
            if watched.rule.tensor == "wgrad":
                self._see(due, weight.grad)
            else:  # a later update has other weights
                self._see(self._unseen(due), weight)
        self._looks.launch()

    def _unseen(self, places: list[int]) -> list[int]:
        return [place for place in places if not self._watched[place].is_seen]

    @never_raises
    def _look_at_weights(self, places: list[int]) -> None:
        unseen = self._unseen(places)
        if not unseen:
            return
        watched = self._watched[unseen[0]]
        weight = getattr(watched.module, "weight", None)
        # Nobody has changed it, or an optimizer that is none of torch's.
        self._see(unseen, weight if watched.rule.tensor == "weight" else getattr(weight, "grad", None))

    def _see(self, places: list[int], tensor: Any) -> None:
        # Codes of a quantized weight are not its numbers.
        if places and tensor is not None and tensor.is_floating_point():
            local = held(tensor)
            if is_freed(local):
                watched = self._watched[places[0]]
                reporter.say("freed-tensor", _FREED.format(watched.rule.tensor, watched.layer), kind=_FREED)
            else:
                self._looks.look(places, local, stays=True, is_kept=True)

    def _how_held(self, place: int) -> Held:
        return Held(self._watched[place], *self._held(self._watched[place]))

    def _first_series(self, watched: InspectedTensor) -> Series | None:
        name, reduce = watched.first
        return self._series_of(watched, name, reduce)

    def _series_of(self, watched: InspectedTensor, name: str, reduce: tuple[str, ...]) -> Series | None:
        key = (watched.layer, watched.rule.tensor, name)
        if key not in self._series:
            self._series[key] = measure_of(_name_of(watched, name), reduce).series()
        return self._series[key]

    def _held(self, watched: InspectedTensor) -> tuple[int, int]:
        """Return how many ranks hold the same tensor, and how many different ones there are."""
        if watched.rule.tensor not in _OF_PARAMETERS:
            return 1, self._ranks
        weight = getattr(watched.module, "weight", None)  # not every layer has one
        return copies_of(weight, self._ranks) or 1, shards_of(weight) or 1


_FREED = (
    "The {} of {!r}, and perhaps of others, has no memory at the end of a step: FSDP has given it back. Its statistics "
    "are left out; wrap the model with fully_shard(), or with use_orig_params=True."
)


def _name_of(watched: InspectedTensor, name: str) -> str:
    return f"inspect/{watched.layer}/{watched.rule.tensor}/{_published(name)}"


def _published(name: str) -> str:
    return name.replace("%", "_percent")
