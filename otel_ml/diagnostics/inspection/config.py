"""What is inspected: read from YAML or a mapping in the form of NVIDIA's inspection tool."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from otel_ml.diagnostics.inspection.blocks import BLOCK_STATISTIC, BlockRange
from otel_ml.diagnostics.inspection.fp8 import FORMATS, FP8_STATISTICS, RECIPES
from otel_ml.diagnostics.inspection.nvfp4 import NVFP4
from otel_ml.diagnostics.inspection.schedule import EVERY_STEP, Schedule
from otel_ml.diagnostics.inspection.statistics import STATISTICS
from otel_ml.exceptions import ConfigError

__all__ = ["TENSORS", "Rule", "Section", "sections_of"]

TENSORS = ("weight", "activation", "output", "gradient", "wgrad", "dgrad")
"""`activation` is a layer's input, `gradient` that of its output, `dgrad` that of its input, `wgrad` of its weight."""

FEATURES = ("LogTensorStats", "LogFp8TensorStats", "LogNvfp4TensorStats", "DumpTensors")

NUMERIC = frozenset(
    {
        "DisableFP8GEMM",
        "DisableFP8Layer",
        "DisableQuantizationGEMM",
        "DisableQuantizationLayer",
        "PerTensorScaling",
        "FakeQuant",
    }
)
"""Features of Transformer Engine that are its own to do."""

_KEYS = ("enabled", "stats", "tensors", "tensors_struct", "freq", "start_step", "end_step", "start_end_list", "format")


@dataclass(frozen=True, slots=True)
class Rule:
    """What is measured of one kind of tensor, and when.

    Attributes:
        tensor: one of `weight`, `activation`, `output`, `gradient`, `wgrad`, `dgrad`.
        stats: plain ones, and those of FP8 and NVFP4 with or without a recipe in front (`mxfp8_mse`); none where the
            tensor itself is saved.
        schedule: at which steps.
        format: of FP8: `e4m3`, `e5m2`, or `hybrid`, which is `e5m2` for gradients.
    """

    tensor: str
    stats: tuple[str, ...]  # none where the whole tensor is saved
    schedule: Schedule = EVERY_STEP
    format: str = "hybrid"


@dataclass(frozen=True, slots=True)
class Section:
    """Layers, and the rules for them.

    Attributes:
        name: as in the configuration.
        pattern: regular expression that a layer's whole name fits, or None.
        types: parts of a layer's name, one of which it contains, where `pattern` is None.
        rules: one or more for a tensor.
    """

    name: str
    pattern: str | None
    types: tuple[str, ...]
    rules: tuple[Rule, ...]

    def selects(self, layer: str) -> bool:
        """Return whether the section is about this layer."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, layer) is not None
        return any(part in layer for part in self.types)


def sections_of(
    config: Mapping[str, Any] | str | PathLike[str], *, statistics: Iterable[str] = ()
) -> tuple[Section, ...]:
    """Return the enabled sections of a configuration.

    Args:
        config: a mapping, or the path of a YAML file.
        statistics: names of statistics of the user's own.

    Raises:
        ConfigError: all that is wrong, in one message: unknown keys, features, tensors and statistics with the nearest
            known name, bad regular expressions, sections without layers.
    """
    problems: list[str] = []
    found = [
        _section(str(name), content, frozenset(statistics), problems)
        for name, content in _content(config).items()
        if not (isinstance(content, Mapping) and content.get("enabled") is False)
    ]
    if problems:
        raise ConfigError(*problems)
    return tuple(found)


def _content(config: Mapping[str, Any] | str | PathLike[str]) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    import yaml

    path = Path(fspath(config))
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(
            f"inspection: {str(path)!r} cannot be read: {error}. Pass the path of a YAML file."
        ) from error
    if not isinstance(content, Mapping):
        raise ConfigError(f"inspection: {str(path)!r}: expected sections, got {content!r:.80}.")
    return content


def _section(name: str, content: Any, own: frozenset[str], problems: list[str]) -> Section:
    if not isinstance(content, Mapping):
        problems.append(f"inspection: {name}: expected layers and features, got {content!r:.80}.")
        return Section(name, None, (), ())
    # What is wrong is added to `problems`, and reading goes on: one message is to have all of it.
    pattern, types = _layers(name, content.get("layers"), problems)
    rules: list[Rule] = []
    for feature, options in _features(content):
        where = f"inspection: {name}: {feature}"
        if feature in FEATURES:
            if isinstance(options, Mapping) and options.get("enabled") is False:
                continue
            rules += _rules(where, feature, options, own, problems)
        elif feature in NUMERIC:
            problems.append(
                f"{where} is Transformer Engine's to do, and otel_ml only measures. Leave it to nvdlfw-inspect, in a "
                "file of its own."
            )
        else:
            problems.append(f"{where}: {_unknown('feature', feature, FEATURES)}")
    return Section(name, pattern, types, tuple(rules))


def _features(content: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in content.items():
        # NVIDIA's files put the features of Transformer Engine below this key, and others beside it.
        if key == "transformer_engine" and isinstance(value, Mapping):
            yield from value.items()
        elif key not in {"enabled", "layers"}:
            yield key, value


def _layers(name: str, layers: Any, problems: list[str]) -> tuple[str | None, tuple[str, ...]]:
    expected = "expected layer_name_regex_pattern or layer_types"
    if not isinstance(layers, Mapping) or len(layers) != 1:
        problems.append(f"inspection: {name}: layers: {expected}, got {layers!r:.80}. Write one of them.")
        return None, ()
    ((key, value),) = layers.items()
    if key == "layer_name_regex_pattern":
        try:
            re.compile(value)
        except (re.error, TypeError) as error:
            problems.append(f"inspection: {name}: layers: expected a regular expression, got {value!r:.80}: {error}.")
            return None, ()
        return value, ()
    if key == "layer_types" and isinstance(value, Sequence) and not isinstance(value, str) and value:
        return None, tuple(map(str, value))
    problems.append(f"inspection: {name}: layers: {expected}, got {layers!r:.80}. Write one of them.")
    return None, ()


def _rules(where: str, feature: str, options: Any, own: frozenset[str], problems: list[str]) -> list[Rule]:
    if not isinstance(options, Mapping):
        problems.append(f"{where}: expected stats and tensors, got {options!r:.80}.")
        return []
    # What stands beside `tensors_struct` holds for each of them, unless one says otherwise.
    shared = {key: value for key, value in options.items() if key not in {"tensors", "tensors_struct"}}
    return [_rule(where, feature, {**shared, **struct}, own, problems) for struct in _structs(where, options, problems)]


def _structs(where: str, options: Mapping[str, Any], problems: list[str]) -> Collection[Mapping[str, Any]]:
    """Return what is said of each tensor by itself."""
    structs = options.get("tensors_struct")
    if structs is None:
        tensors = options.get("tensors") or ()
        if not isinstance(tensors, str) and not _is_list(tensors):
            problems.append(f"{where}: tensors: expected a list, got {tensors!r:.80}.")
            return []
        # A plain list is the same as a structure for each, with nothing of its own in it.
        structs = [{"tensor": tensor} for tensor in ([tensors] if isinstance(tensors, str) else tensors)]
    elif not _is_list(structs) or not all(isinstance(struct, Mapping) for struct in structs):
        problems.append(f"{where}: tensors_struct: expected a list of {{tensor: …, stats: …}}, got {structs!r:.80}.")
        return []
    if not structs:
        problems.append(f"{where}: expected tensors or tensors_struct, got neither. Name one of {', '.join(TENSORS)}.")
    return structs


def _rule(where: str, feature: str, options: Mapping[str, Any], own: frozenset[str], problems: list[str]) -> Rule:
    problems += [f"{where}: {_unknown('key', key, _KEYS)}" for key in options if key not in _KEYS and key != "tensor"]
    tensor = str(options.get("tensor"))
    if tensor not in TENSORS:
        problems.append(f"{where}: {_unknown('tensor', tensor, TENSORS)}")
    known = known_statistics(feature, own)
    stats = tuple(_statistic(where, stat, problems) for stat in _listed(where, "stats", options.get("stats"), problems))
    if not options.get("stats") and feature != "DumpTensors":
        problems.append(f"{where}: {tensor}: expected stats, got none. Name some of {', '.join(known[:10])}.")
    strange = [stat for stat in stats if stat not in known and not _is_of_blocks(feature, stat)]
    problems += [f"{where}: {tensor}: {_unknown('statistic', stat, known)}" for stat in strange]
    # With the recipe in front, as statistics of FP8 with a recipe have it: a layer may have both.
    if feature == "LogNvfp4TensorStats":
        stats = tuple(f"{NVFP4}_{stat}" for stat in stats)
    kind = str(options.get("format", "hybrid"))
    if kind not in {*FORMATS, "hybrid"}:
        problems.append(f"{where}: {_unknown('format', kind, (*FORMATS, 'hybrid'))}")
    return Rule(tensor, stats, _schedule(where, options, problems), kind)


def known_statistics(feature: str, own: frozenset[str]) -> tuple[str, ...]:
    """Return the names that `stats` of a feature may hold."""
    if feature == "DumpTensors":
        return ()
    if feature == "LogTensorStats":
        return (*STATISTICS, BLOCK_STATISTIC, *sorted(own))
    if feature == "LogNvfp4TensorStats":
        return FP8_STATISTICS
    return (*FP8_STATISTICS, *(f"{recipe}_{stat}" for recipe in (*RECIPES, NVFP4) for stat in FP8_STATISTICS))


def _statistic(where: str, stat: Any, problems: list[str]) -> str:
    """Return the name of a statistic; one with options, `{max_blockwise_dynamic_range: {…}}`, has them in its name."""
    if not isinstance(stat, Mapping):
        return str(stat)
    # A mapping with several keys names no statistic: it is shown whole in the problem.
    ((name, options),) = stat.items() if len(stat) == 1 else (("", stat),)
    given = dict(options) if isinstance(options, Mapping) else {}
    size, dims = given.pop("block_size", 32), given.pop("dims", 1)
    is_number = isinstance(size, int) and not isinstance(size, bool)
    if name != BLOCK_STATISTIC or given or not is_number or size < 1 or dims not in (1, 2):
        problems.append(
            f"{where}: stats: expected a name, or {{{BLOCK_STATISTIC}: {{block_size: 32, dims: 1 or 2}}}}, got "
            f"{stat!r:.120}."
        )
        return BLOCK_STATISTIC
    return BlockRange(size, dims).name


def _is_of_blocks(feature: str, stat: str) -> bool:
    return feature == "LogTensorStats" and BlockRange.named(stat) is not None


def _schedule(where: str, options: Mapping[str, Any], problems: list[str]) -> Schedule:
    freq = options.get("freq", 1)
    if not isinstance(freq, int) or isinstance(freq, bool) or freq < 1:
        problems.append(f"{where}: freq: expected a number of steps from 1 on, got {freq!r}.")
        freq = 1
    listed = options.get("start_end_list")
    start, end = options.get("start_step"), options.get("end_step")
    ranges: tuple[tuple[Any, Any], ...] = ()
    # `start_end_list` wins over `start_step` and `end_step`.
    if listed is None:
        if start is not None or end is not None:
            ranges = ((start or 0, _end(end)),)
    else:
        pairs = [
            tuple(pair) if isinstance(pair, Sequence) else (pair,)
            for pair in _listed(where, "start_end_list", listed, problems)
        ]
        ranges = tuple((pair[0], _end(pair[-1])) if len(pair) == 2 else (-1, None) for pair in pairs)
    if not all(_is_range(*pair) for pair in ranges):
        wrong = (start, end) if listed is None else listed
        problems.append(f"{where}: expected steps (first, last) with first ≤ last, both inside, got {wrong!r:.80}.")
        ranges = ()
    return Schedule(freq, ranges)


def _end(last: Any) -> Any:
    return None if last == -1 else last  # as NVIDIA's tool writes “no end”


def _is_range(first: object, last: object) -> bool:
    if not isinstance(first, int) or first < 0:
        return False
    return last is None or (isinstance(last, int) and last >= first)


def _listed(where: str, key: str, value: Any, problems: list[str]) -> Collection[Any]:
    """Return a list that may be left out; what is none is a problem."""
    if value is None or _is_list(value):
        return () if value is None else value
    problems.append(f"{where}: {key}: expected a list, got {value!r:.80}.")
    return ()


def _is_list(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))


def _unknown(what: str, name: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r}.{hint} Known: {', '.join(known)}."
