"""All that crosses the exporter seam: frozen records, each with the run's `seq` (docs/protocol.md §6.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from otel_ml.wire.rendezvous import path_part

__all__ = [
    "Artifact",
    "Audio",
    "HistogramValue",
    "Image",
    "JsonValue",
    "Params",
    "Record",
    "RunInfo",
    "RunStatus",
    "Span",
    "SpanBatch",
    "SpanLink",
    "StepRecord",
    "Summary",
    "Table",
    "Text",
]

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The experiment run an exporter is started for.

    Attributes:
        id: `ml.experiment.id`; the same id is the same run in every backend, also after a restart.
        experiment: W&B project, MLflow experiment, folder.
        name: display name of the run; by default made of the id, or the id itself.
        dir: folder of the run; an exporter owns `folder()` of its own name in it.
        started_at: seconds since the epoch, of the first point.
        tags: labels in backends that have them.
        notes: a free text.
        instance: which exporter of its kind this is for: `a` of `jsonl/a`, "" of `jsonl`.
    """

    id: str
    experiment: str
    name: str
    dir: Path
    started_at: float
    tags: tuple[str, ...] = ()
    notes: str | None = None
    instance: str = ""

    def folder(self, exporter: str) -> Path:
        """Return the folder in `dir` that an exporter has for itself; another instance of it has another.

        Examples:
            >>> run = RunInfo(id="1", experiment="docs", name="1", dir=Path("runs"), started_at=0.0)
            >>> run.folder("parquet").as_posix(), run.of_instance("parquet/a").folder("parquet").as_posix()
            ('runs/parquet', 'runs/parquet-a')
        """
        return self.dir / (f"{exporter}-{path_part(self.instance)}" if self.instance else exporter)

    def of_instance(self, name: str) -> RunInfo:
        """Return it as the exporter called `name` is told, such as `jsonl/a`."""
        return replace(self, instance=name.partition("/")[2])


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A closed step of one role and axis: what every scalar in a backend comes from.

    Attributes:
        seq: the run's running number of records; ascends, without gaps.
        role: `trainer`, `generator`, …; already part of the names in `values` where it has to be.
        axis: `step`, `rollout`, …, `time`.
        step: index on the axis (on `time`: seconds since the run began).
        attempt: how many restarts of the job came before.
        time: seconds since the epoch of the newest record in the step; final, so a replay writes the same.
        values: published name → value; NaN and ±Inf are data, absent names were not recorded.
        writers_missing: members that had delivered no point of this step when it closed.
        amendment: True where `values` are corrections or additions to a step exported earlier.
    """

    seq: int
    role: str
    axis: str
    step: int
    attempt: int
    time: float
    values: Mapping[str, float]
    writers_missing: int = 0
    amendment: bool = False


@dataclass(frozen=True, slots=True)
class Params:
    """Hyper-parameters, nested as the user gave them; later ones add to earlier ones."""

    seq: int
    time: float
    params: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Summary:
    """Final scalars of the run: W&B summary, MLflow metric, TensorBoard hparams metric."""

    seq: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Text:
    """A text at a step."""

    seq: int
    time: float
    name: str
    axis: str
    step: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table at a step: `rows` are as long as `columns`."""

    seq: int
    time: float
    name: str
    axis: str
    step: int | None
    columns: tuple[str, ...]
    rows: tuple[tuple[JsonValue, ...], ...]


@dataclass(frozen=True, slots=True)
class Image:
    """A PNG at a step (`log_image` and `log_figure`)."""

    seq: int
    time: float
    name: str
    axis: str
    step: int | None
    png: bytes
    width: int
    height: int
    caption: str | None = None


@dataclass(frozen=True, slots=True)
class Audio:
    """A WAV file (PCM 16) at a step."""

    seq: int
    time: float
    name: str
    axis: str
    step: int | None
    wav: bytes
    sample_rate: int
    caption: str | None = None


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A histogram at a step: `counts[i]` values in `[edges[i], edges[i + 1])`; finite edges, ascending."""

    seq: int
    time: float
    name: str
    axis: str
    step: int | None
    edges: tuple[float, ...]
    counts: tuple[float, ...]

    def merged(self, most: int) -> HistogramValue:
        """Return it with at most `most` bins: neighbors are added up, so the total and the ends stay.

        Examples:
            >>> fine = HistogramValue(1, 0.0, "h", "step", 0, edges=(0, 1, 2, 3), counts=(5, 6, 7))
            >>> fine.merged(2).edges, fine.merged(2).counts
            ((0, 2, 3), (11, 7))
        """
        # Rounded up, so that there are at most so many.
        width = -(-len(self.counts) // most)
        if width <= 1:
            return self
        merged = tuple(sum(self.counts[at : at + width]) for at in range(0, len(self.counts), width))
        # The first edge of each bin, and the last one of all, with which a shorter bin may end.
        return replace(self, edges=(*self.edges[:-1:width], self.edges[-1]), counts=merged)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of the run, already in the run's folder unless it is only a reference.

    Attributes:
        name: artifact name; with `path_in` unique in the run.
        type: `model`, `dataset`, `checkpoint`, `code`, ….
        path_in: relative path inside the artifact (`model.pt`, `tokenizer/vocab.json`).
        local: the file on this machine, or None for a reference.
        uri: where the file is, as the worker saw it.
        size: bytes.
        sha256: of the content, or None where it could not be read.
        aliases: `latest`, `best`, ….
    """

    seq: int
    time: float
    name: str
    type: str
    path_in: str
    local: Path | None
    uri: str
    size: int
    sha256: str | None
    step: int | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanLink:
    """What a span says of another one that led to it, often of another process; that one may never have arrived."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span: a timer, or any OTel span of the job."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    role: str
    rank: int
    axis: str | None
    step: int | None
    attributes: Mapping[str, JsonValue] = field(default_factory=dict)
    status: Literal["unset", "ok", "error"] = "unset"
    links: Sequence[SpanLink] = ()


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """Spans in the order they arrived."""

    seq: int
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The run's state: `running` again after `finished`, `failed` or `killed` when later data reopens it."""

    seq: int
    time: float
    status: Literal["running", "finished", "failed", "killed"]


Record: TypeAlias = (
    StepRecord | Params | Summary | Text | Table | Image | Audio | HistogramValue | Artifact | SpanBatch | RunStatus
)
