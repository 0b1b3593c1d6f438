"""Scalars on their way to MLflow: `log_batch` calls whose last one says how far the run is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from otel_ml.wire.published_name import published_name
from otel_ml_exporters.backends.mlflow.axes import Axes
from otel_ml_exporters.backends.mlflow.errors import export_error
from otel_ml_exporters.backends.mlflow.names import Names
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.records import StepRecord, Summary

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, RunTag

__all__ = ["AMENDMENTS", "ATTEMPT", "ATTEMPT_METRIC", "CORRECTED", "SEQ", "Points"]

SEQ = "otel_ml.seq"
ATTEMPT = "ml.attempt"
AMENDMENTS = "otel_ml.amendments"
CORRECTED = "otel_ml.amended"
ATTEMPT_METRIC = "otel_ml/attempt"
"""Metric of rows of a restarted job: the attempt, at the step and the time of the row's points."""

# MLflow takes 1,000 metrics, parameters and tags in a request; some room for the tags.
_LIMIT = 990
_MAX_TAGS = 100
_MAX_TAG_VALUE = 8000


class Points:
    """Collects metrics and sends them, in the order of `seq`.

    MLflow's key of a point is (run, metric, time, step, value), and all five are the record's own: a request that
    is repeated, by the pipeline or after a crash, changes nothing. The tag `otel_ml.seq` is written after the
    metrics of its request, so what it names is stored.

    Attributes:
        stored: the last `seq` that MLflow confirmed.
    """

    def __init__(
        self,
        client: MlflowClient,
        run_id: str,
        tags: Mapping[str, str],
        names: frozenset[str],
        *,
        is_of_files: bool = False,
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._metrics: list[Metric] = []
        self._sent_tags = dict(tags)
        self._tags: dict[str, str] = {}
        self._names = Names(tags, names, is_of_files=is_of_files)
        self._axes = Axes(tags, names, self._names.key)
        # Key → name of what is not sent yet: what MLflow refuses is told by the names that the records have.
        self._recorded: dict[str, str] = {}
        self.stored = int(tags.get(SEQ, "0"))

    def reset(self) -> None:
        """Forget what was added since the last confirmed request; it is about to come again."""
        self._metrics.clear()
        self._tags.clear()
        self._recorded.clear()

    def add_step(self, record: StepRecord) -> None:
        """Add the values of a closed step."""
        self._send_before(record.seq, len(record.values) + 1)  # one more for the attempt
        # MLflow's points have whole milliseconds.
        milliseconds = round(record.time * 1000)
        if record.amendment:
            milliseconds += self._count_amendment(record, milliseconds)
        values = {self._keyed(name, record.axis): value for name, value in record.values.items()}
        if record.attempt:
            # A point of MLflow has no attributes: what it belongs to can only stand beside it.
            name = published_name(record.role, record.axis, ATTEMPT_METRIC)
            values[self._axes.key(name, record.axis)] = record.attempt
        self._add(values, milliseconds, record.step)
        # Behind `_send_before`, which clears what it has sent.
        self._tags[ATTEMPT] = str(record.attempt)

    def add_summary(self, record: Summary) -> None:
        """Add final values, at step 0."""
        self._send_before(record.seq, len(record.values))
        values = {self._keyed(name, None): value for name, value in record.values.items()}
        self._add(values, round(record.time * 1000), 0)

    def send(self, seq: int) -> None:
        """Send what is there; afterwards everything up to `seq` is stored."""
        from mlflow.entities import RunTag

        # Keys are given while rows are added, so what explains them is known by now, and is to be there before the
        # first point.
        self._send_axes()
        # A single row may have more values than a request takes. The tag with `seq` travels with the last request
        # alone.
        while len(self._metrics) > _LIMIT:
            self._log(self._metrics[:_LIMIT])
            del self._metrics[:_LIMIT]
        self._tags[SEQ] = str(seq)
        # The attempt is the same in nearly all batches: a tag is sent where it has changed.
        changed = {key: value for key, value in self._tags.items() if self._sent_tags.get(key) != value}
        tags = [RunTag(key, value) for key, value in changed.items()]
        self._log(self._metrics, tags)
        self._sent_tags.update(changed)
        self.stored = seq
        self.reset()

    def _send_axes(self) -> None:
        """Write what explains new metrics before their points: a crash in between must leave none unexplained."""
        from mlflow.entities import RunTag

        tags = [RunTag(key, value) for key, value in {**self._axes.unwritten, **self._names.unwritten}.items()]
        for begin in range(0, len(tags), _MAX_TAGS):
            self._client.log_batch(self._run_id, tags=tags[begin : begin + _MAX_TAGS], synchronous=True)
        self._axes.mark_written()
        self._names.mark_written()

    def _keyed(self, name: str, axis: str | None) -> str:
        """Return the key of a value, and remember for which name it stands; no axis is that of final values."""
        key = self._axes.summary_key(name) if axis is None else self._axes.key(name, axis)
        self._recorded[key] = name
        return key

    @property
    def mapped(self) -> Mapping[str, str]:
        """Name → key, of those that MLflow does not take as they are."""
        return self._names.mapped

    def _log(self, metrics: Sequence[Metric], tags: Sequence[RunTag] = ()) -> None:
        """Send a request; where MLflow refuses it for good, find out for which metrics.

        Raises:
            PermanentExportError: with the names of the values that it refuses.
        """
        try:
            self._client.log_batch(self._run_id, metrics=metrics, tags=tags, synchronous=True)
        except Exception as error:
            refusal = export_error(error)
            # A request without metrics is refused for its tags, which no record can be left out for.
            if not metrics or not isinstance(refusal, PermanentExportError):
                raise
            refused = set(self._refused(sorted({metric.key for metric in metrics}), metrics))
            names = [self._recorded[key] for key in refused if key in self._recorded]
            raise PermanentExportError(refusal.sentence, names=names) from error

    def _refused(self, keys: Sequence[str], metrics: Sequence[Metric]) -> Iterator[str]:
        """Yield those of `keys` that MLflow refuses for good; what it takes of the others changes nothing."""
        chosen = set(keys)
        try:
            # Without the tags: `otel_ml.seq` may not say more than is stored.
            some = [metric for metric in metrics if metric.key in chosen]
            self._client.log_batch(self._run_id, metrics=some, synchronous=True)
        except Exception as error:
            if not isinstance(export_error(error), PermanentExportError):
                raise
            if len(keys) == 1:
                yield keys[0]
                return
            middle = len(keys) // 2
            yield from self._refused(keys[:middle], metrics)
            yield from self._refused(keys[middle:], metrics)

    def _send_before(self, seq: int, count: int) -> None:
        if self._metrics and len(self._metrics) + count > _LIMIT:
            # All that was added is of records before this one.
            self.send(seq - 1)

    def _add(self, values: Mapping[str, float], milliseconds: int, step: int) -> None:
        from mlflow.entities import Metric

        self._metrics.extend(Metric(name, float(value), milliseconds, step) for name, value in values.items())

    def _count_amendment(self, record: StepRecord, milliseconds: int) -> int:
        """Return the running number of this correction in the run, which makes its points newer than earlier ones."""
        # `reset()` goes back to what MLflow has confirmed: a correction that comes again gets the number that it had.
        number = int(self._tag(AMENDMENTS, "0")) + 1
        corrected: list[list[str | int]] = json.loads(self._tag(CORRECTED, "[]"))
        corrected.append([record.role, record.axis, record.step, milliseconds + number])
        while len(listed := json.dumps(corrected, separators=(",", ":"))) > _MAX_TAG_VALUE:
            del corrected[0]
        self._tags[AMENDMENTS] = str(number)
        self._tags[CORRECTED] = listed
        return number

    def _tag(self, key: str, default: str) -> str:
        return self._tags.get(key, self._sent_tags.get(key, default))
