"""Why a target is missed: figure → the mechanism, with figures of the same run in `{part/figure}`.

A test fails where a recorded figure misses its target and nothing is said of it here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.benchmarks.figures import Figure
from tests.benchmarks.targets import said

__all__ = ["EXPLANATIONS", "told"]

RECORD = (
    "A record is a look-up of the step, a clock, and four items appended to a list (ADR 0022). What the background "
    "thread takes meanwhile to fold them is in the figure, too: both share one interpreter."
)

LOG = (
    "Its names are looked at together, the types of its values are looked at, and one record "
    "of all of them is appended (ADR 0017). What the background thread takes meanwhile to add them up, in a loop that "
    "does nothing else, is in the figure too: both share one interpreter."
)

TIMED = (
    "A timer is three calls of C, two clocks, a span with its id and parent, and a record; so that "
    "OpenTelemetry sees it, its context is attached and detached. A timer above the level is one look-up and the "
    "two calls of `with`."
)

DISABLED = (
    "Without a run a call tests one flag: a function of Python that does "
    "nothing takes {calls/empty_call.hot} here, and OpenTelemetry's no-op counter "
    "{calls/disabled_record.hot.sdk}. `timed` must also return what `with` can enter."
)

COLD = (
    "With evicted caches names, numbers, timers and the code itself come from memory again. The SDK's step, "
    "measured in turns with ours, takes {cold_step/sdk.p50}: the ratio is {cold_step/ratio}. Of so few steps "
    "p99 is the slowest or the one after it."
)

LOOP = (
    "Four ranks, their senders and the service share the cores of this machine: what any of them uses is taken "
    "from training. The ranks spend {training_loop/50ms.training_thread} of a 50-ms step and "
    "{training_loop/5ms.training_thread} of a 5-ms step in otel_ml's calls. Whole steps differ by "
    "{training_loop/50ms.wall.difference} and {training_loop/5ms.wall.difference}; beyond the calls that is the "
    "senders (`thread: otel_ml` in the profile), the service, and the scheduling of more processes than there are "
    "cores, which also makes the interval wide. A step that exchanges gradients takes "
    "{training_loop/5ms.wall.step} where 5 ms are asked for."
)

ENCODING = (
    "The SDK's encoder takes {encoding/point.sdk} for the same points: the ratio is "
    "{encoding/point.ratio}. It is on the background thread (`thread: otel_ml` in the profile), and no step "
    "waits for it."
)

SERVICE = (
    "The service is one process of Python, whose threads share one interpreter: it used {throughput/own.cores}. The "
    "engine's thread is the one that is behind; it waits for the interpreter while requests are read (ADR 0021). "
    "No point is decoded one by one (ADR 0012): what the profile shows are the requests (HTTP, the journal's write and "
    "sync), numpy, once for many steps, and what is committed for late data. The scaled figure says what is the "
    "machine's."
)

COLLECTOR = (
    "The Collector decodes, batches and encodes every point and keeps it in its own queue on the same disk, and "
    "shares the cores with the clients and the service. The service used {throughput/collector.cores} meanwhile, "
    "and without the Collector takes {throughput/own.rate}."
)

FOREIGN = (
    "No point is decoded one by one (ADR 0012), but each is looked for among those that arrived before: it has no "
    "running number. The service used {throughput/foreign.cores}, which is one interpreter; a request of 500 points "
    "has 60 KB, most of it attributes, which are compared, written to the journal and synced. The scaled figure "
    "says what is the machine's."
)

SPANS = (
    "Every span is validated and becomes a line of JSON (`Timers` in the profile), in one interpreter: the service "
    "used {throughput/spans.cores}. Those of a form that is known are read and written in a few calls of C (ADR 0012); "
    "what is left is text: a line of 250 bytes for each. The scaled figure says what is the machine's."
)

RANKS = (
    "What the service does for a request as such (its socket, a frame of the journal, the engine's look at its sender) "
    "costs as much as what is in it, and a rank sends one a second with metrics, and one each third second with spans "
    "(ADR 0018). All ranks end a step together, so that their requests come within 0.1 s: a row is there when the last "
    "of them has been worked through. The service used {ranks/1024.cores}, of one interpreter; ranks were late by "
    "{ranks/1024.late_clients} at most, see the [curve](#curves)."
)

MEMORY_OF_RANKS = (
    "A minute is short: in its second half the service still fills what it then keeps. Over the ten minutes asked for "
    "(`--only ranks --long`) it stayed within the target, see [open ends](open-ends.md#speed)."
)

MANY_RANKS = (
    "No row is whole before its last rank has sent it, and 4,096 requests a second are what an interpreter takes: "
    "the service used {ranks/4096.cores}. A rank sends what ended meanwhile when its last request was acknowledged, so "
    "ranks fall behind, by up to {ranks/4096.late_clients}; with 1,024 it was {ranks/1024.late_clients}."
)

LARGEST = (
    "All ranks send within a tenth of a second of the end of a step, and their row waits for the last request: 16,384 "
    "of them, one after the other, with one interpreter. The service used {ranks/16384.cores}. Two processes play all "
    "ranks on the same cores, and were themselves late by {ranks/16384.late_clients}."
)

MEMORY = (
    "Most of it is code: 196 modules of otel_ml, and what they need; OpenSSL, for hashes, is 3.8 MB, which a program "
    "with torch has loaded ([open ends](open-ends.md#speed)). What else a worker holds depends on how far it is ahead "
    "of its sender: here by up to 1,000 steps of 12 values, recorded as fast as Python can. The [curve](#curves) shows "
    "that it does not grow with the steps."
)

JSON = "orjson formats the numbers in a fraction of it; the rest is what the file system takes for their bytes."

TRACKERS = (
    "It includes the backend's own client: W&B's hands each row to another process, MLflow's writes "
    "each value as a row of its database."
)

FINDINGS = (
    "Each step is looked at by some sixty calls of numpy, 0.2 ms in all, whatever it holds: of 256 ranks it is "
    "{findings/256.cpu} of the service's time, of few ranks with short steps a tenth. To look at steps that close "
    "together at once would take the most of it ([open ends](open-ends.md#speed))."
)

WIRE = (
    "These are 120 doubles, as durations are metrics: 882 of their bytes cannot be compressed. The shortest series of "
    "references and literals in these messages, with ideal codes, is 1,675 bytes; zlib's highest level comes to 1,735 "
    "for ten times the CPU. Fewer would need messages that do not say each time twice "
    "([open ends](open-ends.md#speed))."
)

DIAGNOSTICS = (
    "Steps of the same work differ by a quarter from second to second on this machine; what can be told apart is where "
    "a step with diagnostics spends more. In otel_ml's calls, which are some fifteen: {diagnostics/one_pass.calls} "
    "where a step is one pass of a transformer, and {diagnostics/small_passes.calls} where it is hundreds of passes of "
    "a perceptron. Most of it is Python and memory that training has pushed out of the caches, so that each call takes "
    "many times what it takes in a loop; what they differ by are the norms of 133,000 gradients and parameters in 27 "
    "tensors, which have to be read from memory. Norms and the statistics of other tensors of the host are compiled "
    "(ADR 0022). Entering and leaving an operation reads the memory of the process twice. In the background thread: "
    "{diagnostics/one_pass.others} and {diagnostics/small_passes.others} of CPU to fold, encode, write and send some "
    "sixty series, ten times a second, each time with cold caches, too. While it has the interpreter, training may "
    "have to wait for it: {diagnostics/one_pass.waits}, since inside of torch's functions training does not need it; "
    "{diagnostics/small_passes.waits} where it is between them most of the time ([open ends](open-ends.md#speed), with "
    "what the target would take)."
)

EXPLANATIONS: Mapping[str, str] = {
    "calls/record.hot": RECORD,
    "calls/record.hot.ratio": RECORD,
    "calls/log_10.hot": LOG,
    "calls/timed.hot": TIMED,
    "calls/timed.hot.ratio": TIMED,
    "calls/level_off.hot": TIMED,
    "calls/disabled_record.hot": DISABLED,
    "calls/disabled_log_10.hot": DISABLED,
    "calls/disabled_timed.hot": DISABLED,
    "cold_step/p50": COLD,
    "cold_step/p99": COLD,
    "training_loop/50ms.wall.slowdown": LOOP,
    "training_loop/50ms.cpu.slowdown": LOOP,
    "training_loop/5ms.wall.slowdown": LOOP,
    "training_loop/5ms.cpu.slowdown": LOOP,
    "encoding/point": ENCODING,
    "throughput/own.rate": SERVICE,
    "throughput/collector.rate": COLLECTOR,
    "throughput/beside.own.ratio": SERVICE,
    "throughput/beside.foreign.ratio": FOREIGN,
    "throughput/foreign.rate": FOREIGN,
    "throughput/spans.rate": SPANS,
    "ranks/1024.cores": RANKS,
    "ranks/1024.memory.growth": MEMORY_OF_RANKS,
    "ranks/1024.tensorboard.p50": RANKS,
    "ranks/1024.tensorboard.p99": RANKS,
    "ranks/1024.jsonl.p50": RANKS,
    "ranks/1024.jsonl.p99": RANKS,
    "ranks/4096.late_clients": MANY_RANKS,
    "ranks/4096.jsonl.p99": MANY_RANKS,
    "ranks/16384.cores": LARGEST,
    "ranks/16384.memory": LARGEST,
    "ranks/16384.memory.growth": LARGEST,
    "ranks/16384.tensorboard.p99": LARGEST,
    "ranks/16384.jsonl.p99": LARGEST,
    "findings/256.cpu": FINDINGS,
    "findings/8.cpu": FINDINGS,
    "wire/20.gzip": WIRE,
    "memory/http.over_bare": MEMORY,
    "memory/grpc.over_bare": MEMORY,
    "exporters/jsonl.scalar": JSON,
    "exporters/wandb.scalar": TRACKERS,
    "exporters/mlflow.scalar": TRACKERS,
    "diagnostics/one_pass.wall.slowdown": DIAGNOSTICS,
    "diagnostics/one_pass.cpu.slowdown": DIAGNOSTICS,
    "diagnostics/small_passes.wall.slowdown": DIAGNOSTICS,
    "diagnostics/small_passes.cpu.slowdown": DIAGNOSTICS,
}
"""Whether a figure is behind its target says the page, from the last run. Nothing stands here of a loss, or of memory
of a worker that grows: those are defects."""


def told(figure: str, figures: Mapping[str, Figure]) -> str:
    """Return why a figure misses its target, with what else was measured; nothing where nobody has said."""
    text = EXPLANATIONS.get(figure, "")
    return re.sub(r"\{([^}]+)\}", lambda found: said(figures.get(found[1])), text)
