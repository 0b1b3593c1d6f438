"""Attribute keys, event names and reserved names on the wire (docs/protocol.md §4)."""

from __future__ import annotations

from typing import Final

SCOPE: Final = "otel_ml"
"""Name of the instrumentation scope of everything otel_ml sends itself."""

# Resource
EXPERIMENT_ID: Final = "ml.experiment.id"
EXPERIMENT_NAME: Final = "ml.experiment.name"
RUN_NAME: Final = "ml.run.name"
ATTEMPT: Final = "ml.attempt"
ROLE: Final = "service.name"
INSTANCE: Final = "service.instance.id"
PARENT: Final = "ml.parent"
STARTER: Final = "ml.starter"
"""Of a writer with a place of its own: the instance that started it, or gave it the run's variables."""
LEFT_FOR: Final = "ml.left_for_ms"
RANK: Final = "ml.rank"
WORLD_SIZE: Final = "ml.world_size"
LOCAL_RANK: Final = "ml.local_rank"
TOPOLOGY_PREFIX: Final = "ml.topology."
"""`ml.topology.<dim>` is this rank's coordinate, `ml.topology.<dim>.size` the size of the dimension."""
TOPOLOGY_SIZE_SUFFIX: Final = ".size"
HOST: Final = "host.name"
PID: Final = "process.pid"
PREFIX: Final = "ml.prefix"
"""Present (and empty) on the resource where the user said `init(prefix="")`: names carry no role."""
TAGS: Final = "ml.tags"
NOTES: Final = "ml.notes"
BOOT: Final = "ml.boot"
"""Which boot of which machine the writer runs in: processes of one boot share a clock that nobody can set."""
BORN: Final = "ml.boot.born"
"""Seconds of that clock at which the writer began; which of two was first does not depend on who is heard first."""
PID_NAMESPACE: Final = "ml.pid.namespace"
"""In which of the namespaces of its boot `process.pid` counts: whoever is in the same one can ask whether it lives."""

PROBE: Final = "otel-ml doctor"
"""`service.name` of what asks whether a service is there, and belongs to no run."""

# Scope (or, from any OTel SDK, the point: the point wins)
STEP: Final = "ml.step"
AXIS: Final = "ml.step.axis"
REDUCTION: Final = "ml.reduction"
REDUCTION_DEFAULT: Final = "ml.reduction.default"
"""Which parts of `ml.reduction` nobody asked for: `across`, `within` or `across,within`. They give way to what is asked
for by anybody in the run."""
SEQ: Final = "ml.seq"
SEQ_POINTS: Final = "ml.seq.points"

# Point: values, not identity
M2: Final = "ml.m2"
"""Sum of squared deviations from the mean (Chan, Golub, LeVeque 1979)."""
WSUM: Final = "ml.wsum"
WXSUM: Final = "ml.wxsum"
BOOT_TIME: Final = "ml.boot.time"
"""On the position: when it was taken, in seconds of the clock of `ml.boot`."""
REDUCTIONS: Final = "ml.reductions"
"""On the position: what `define_metric()` says, once: JSON, [[name or glob, reduction, its defaults], …]."""
TIMERS: Final = "ml.timers"
"""On the position: what timers were declared to measure, once: JSON, [[timer, `work` or `wait`], …]."""

# Metrics of the protocol itself
WATERMARK: Final = "otel_ml.step.points"
POSITION: Final = "otel_ml.position"

# Log records
EVENT_PARAMS: Final = "ml.params"
STEP_METRICS_PARAM: Final = "otel_ml.step_metrics"
"""A parameter: what metrics are drawn over where W&B shows them, [[name or glob, metric], …]."""
HIDDEN_SUMMARIES_PARAM: Final = "otel_ml.hidden_summaries"
"""A parameter: of which metrics W&B's summary has nothing, [[name or glob, whether of these], …]."""
SESSIONS_PARAM: Final = "otel_ml.sessions"
"""A parameter: names of sets of hyper-parameters beside the run's own; theirs begin with `<name>.`, their metrics with
`<name>/`."""
EVENT_TEXT: Final = "ml.text"
EVENT_TABLE: Final = "ml.table"
EVENT_IMAGE: Final = "ml.image"
EVENT_AUDIO: Final = "ml.audio"
EVENT_HISTOGRAM: Final = "ml.histogram"
EVENT_ARTIFACT: Final = "ml.artifact"
EVENT_SUMMARY: Final = "ml.summary"
EVENT_WRITER_END: Final = "ml.writer.end"
EVENT_STARTED_END: Final = "ml.started.end"
"""Those whose `ml.starter` sends it end with it, by a kill: none of them owes a shutdown message."""
EVENT_EXCEPTION: Final = "exception"
"""An exception, as the semantic conventions have it; with `ml.status` what its writer failed with."""
EVENT_NOTICE: Final = "ml.notice"
"""Something to say once for the whole job; body is the sentence."""

NAME: Final = "ml.name"
"""Name of a non-scalar (text, table, image, …), as the user wrote it."""
TIMER_LEVEL: Final = "ml.timer.level"

# Spans that were produced or consumed, and their links
VERSION: Final = "ml.version"
"""What something was made with: the version of a policy, for instance."""
CONSUMED: Final = "ml.consumed"
"""How many things were consumed: of a span all, of a link those of its producer and version."""

# Attributes of `ml.writer.end`; the totals of what was sent are on a heartbeat now and then, too (ADR 0031)
STATUS: Final = "ml.status"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
RECORDED: Final = "otel_ml.recorded"
POINTS: Final = "otel_ml.points"
VALUES: Final = "otel_ml.values"
"""Values in those points: what a point counts; one for a Gauge that is all its series has."""
EVENTS: Final = "otel_ml.events"
GIVEN_UP: Final = "otel_ml.given_up"
"""Of those points, what the writer itself knows to be lost, by reason: its full spool, a receiver that refused."""
DROPPED: Final = "otel_ml.dropped"
OVERHEAD: Final = "otel_ml.overhead"
DURATION: Final = "otel_ml.duration"

DEFAULT_AXIS: Final = "step"
TIME_AXIS: Final = "time"
RESERVED_PREFIX: Final = "otel_ml/"
OWN_COUNTS: Final = frozenset({
    "otel_ml/quantile_coarse", "otel_ml/spans_over_budget", "otel_ml/clock/offset", "otel_ml/clock/bound",
    "otel_ml/flushed",
})  # fmt: skip
"""Series that a writer counts itself: no values of its user."""
UNNAMED_ROLES: Final = frozenset({"", "trainer"})
"""Roles that do not appear in published names; `unknown_service*` is one too."""
