"""What fuzzing and reading found: each input once did what the name says it no longer does."""

from __future__ import annotations

import base64
import math
import tracemalloc
import zlib
from typing import Any

import pytest

from otel_ml.variable import size_bytes
from otel_ml_service.receiver.decode import Decoder
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS
from tests.integration.conftest import Bench, bench
from tests.otlp import START, FakeWriter, third_party_request

__all__ = ["bench"]

LARGEST = 2**31 - 1


def event(kind: str, body: Any, **attributes: Any) -> bytes:
    return bytes(FakeWriter().event(kind, body, attributes).SerializeToString())


def exponential(scale: int, *offsets: int, reduction: str = "p50,histogram") -> Any:
    """Return a step of one rank per offset, whose buckets begin there."""
    found = None
    for rank, offset in enumerate(offsets):
        request = FakeWriter(rank=rank).step(1, {"a": 1.0}, reduction=reduction)
        metric = request.resource_metrics[0].scope_metrics[0].metrics[0]
        metric.exponential_histogram.aggregation_temporality = 1
        point = metric.exponential_histogram.data_points.add(count=3, sum=1.0, scale=scale, time_unix_nano=START)
        point.positive.offset = offset
        point.positive.bucket_counts.extend([1, 1, 1])
        found = request if found is None else found
        if found is not request:
            found.resource_metrics.extend(request.resource_metrics)
    return found


def explicit(bounds: list[float], counts: list[int]) -> bytes:
    request = third_party_request([{"name": "a", "value": 1.0, "ml.step": 1}])
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="h")
    metric.histogram.aggregation_temporality = 1
    metric.histogram.data_points.add(count=3, sum=1, explicit_bounds=bounds, bucket_counts=counts, time_unix_nano=START)
    return bytes(request.SerializeToString())


def with_resource(**extra: Any) -> bytes:
    attributes = {key.replace("_", "."): value for key, value in extra.items()}
    return bytes(FakeWriter(extra=attributes).step(1, {"a": 1.0}).SerializeToString())


INFINITE = math.inf
CASES = {
    "a goodbye with infinitely many values": ("logs", event("ml.writer.end", None, **{"otel_ml.recorded": INFINITE})),
    "a goodbye with infinite losses": ("logs", event("ml.writer.end", None, **{"otel_ml.dropped": {"x": INFINITE}})),
    "an infinite artifact": ("logs", event("ml.artifact", b"abc", **{"ml.artifact.size": INFINITE})),
    "an artifact of no size": ("logs", event("ml.artifact", b"abc", **{"ml.artifact.size": math.nan})),
    "an infinitely wide image": ("logs", event("ml.image", b"abc", **{"ml.width": INFINITE})),
    "bounds that are infinite": ("metrics", explicit([INFINITE], [1, 2])),
    "bounds that are no numbers": ("metrics", explicit([math.nan, 1.0], [1, 2, 3])),
    "bounds that descend": ("metrics", explicit([3.0, 1.0], [1, 2, 3])),
    "a rank of 4000 digits": ("metrics", with_resource(ml_rank="9" * 4000)),
    "a rank beyond 64 bits": ("metrics", with_resource(ml_rank=str(2**63))),
    "an attempt beyond 64 bits": ("metrics", with_resource(ml_attempt="9" * 40)),
    "a reason of ten megabytes": ("metrics", with_resource(ml_rank="x" * 10_000_000)),
    "the smallest scale there is": ("metrics", exponential(-LARGEST - 1, 0).SerializeToString()),
    "a scale below every double": ("metrics", exponential(-2000, 5).SerializeToString()),
    "the largest scale there is": ("metrics", exponential(LARGEST, 0).SerializeToString()),
    "a content-length of 5000 digits": (
        "http", b"POST /v1/logs HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n"),
    "a target that is half an address": ("http", b"GET //[ HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    "service.json with an infinite pid": (
        "rendezvous", b'{"endpoint":"","token":"","pid":1e999,"run_dir":""}'),
    "service.json nested without end": ("rendezvous", b"[" * 100_000),
    "a line that is a number": ("rows", b"2\n"),
    "a line nested without end": ("rows", b"[" * 100_000 + b"\n"),
    "patterns of scraped series that are nothing": ("yaml", b"scraped: {allow: ['vllm/*'], deny: }\n"),
    "patterns of scraped series that are a number": ("yaml", b"scraped: {deny: 5}\n"),
    "a size of 400 digits": ("settings", b'{"OTEL_ML_DIR_MAX": "' + b"9" * 400 + b'"}'),
}  # fmt: skip


@pytest.mark.parametrize(("target", "data"), CASES.values(), ids=CASES)
def test_is_taken_or_refused_as_documented(target: str, data: bytes) -> None:
    TARGETS[target](data)


@pytest.mark.parametrize("scale", [-10, 0, 6, 20])
def test_two_points_far_apart_do_not_fill_the_memory(scale: int) -> None:
    """A kilobyte of buckets 2^32 apart took all memory there was."""
    tracemalloc.start()
    try:
        TARGETS["metrics"](exponential(scale, -LARGEST - 1, LARGEST - 5).SerializeToString())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 20 * 2**20


def test_a_scale_that_opentelemetry_does_not_have_is_rejected_with_the_range() -> None:
    decoded = Decoder().protobuf("metrics", exponential(21, 0).SerializeToString())

    assert "scale 21; expected -10 to 20" in decoded.rejections.message


def test_a_size_that_is_no_number_is_said() -> None:
    with pytest.raises(ValueError, match="a size such as"):
        size_bytes("9" * 400)


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("target", ["journal", "journal_file"])
def test_a_journal_with_entries_nobody_wrote_is_salvaged(target: str, place: float) -> None:
    for journal in SEEDS[target]():
        at = int(len(journal) * place)
        for damage in (b"\xff" * 100, b"\x00" * 3000):
            TARGETS[target](journal[:at] + damage + journal[at + len(damage) :])


def test_after_every_finding_the_same_service_goes_on_and_has_counted(bench: Bench) -> None:
    service = bench.service()
    sender = bench.sender(service)
    for target, data in CASES.values():
        if target in {"metrics", "logs"}:
            assert sender.send(target, data).status == 200

    assert sender.send("metrics", FakeWriter(experiment="next").step(1, {"loss": 1.0})).status == 200
    text = sender.request("GET", "/metrics").body.decode()
    assert text.count("otel_ml_rejected_total{") >= 5
    assert "internal error" not in text


def test_a_defect_in_a_decoder_is_a_rejection_that_is_said_and_not_a_request_that_comes_back_for_ever(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    service = bench.service()

    def broken(*_: object) -> list[object]:
        raise KeyError("a defect")

    decoder = service._admission._decoder
    decoder._scope = {**decoder._scope, "traces": broken}  # a defect that nobody knows a request for
    sender = bench.sender(service)

    answer = sender.send("traces", FakeWriter().span("forward", 1))

    assert answer.status == 200
    assert b"internal error" in answer.body
    assert "Please report it with this log" in caplog.text
    assert sender.send("metrics", FakeWriter().step(1, {"loss": 1.0})).status == 200


def test_a_damaged_journal_whose_entry_claims_to_be_huge_is_rescued() -> None:
    TARGETS["journal"](zlib.decompress(base64.b85decode(_HUGE_ENTRY)))


_HUGE_ENTRY = (
    "c-rln&2Jk;6u@`ZU(Jh?IGfPKHbLuvP~s$(owzBn1WkfWn=~KAae;6NYwsjovLDXwx`{zmmC#B^T#>jSu2e`|kT`Maq2iDOLgIwP"
    "0f~PAi3=xS*4|C(6(mS45{ceVyPkQoGjHB|^Tyhdz4rQ&VpDO`Fg3{*r??nL2sbN=9LELN9paAR*&Spzab?1tPJqi)NtaXU{)Owg"
    "(=)~j1VIo4K@bE%5Cr)zcr6ef7#bpyEmc&i$W*r#yWy3=S4+jYa#1YL%`X*2uT>n;C5?*Z;#*~LWtH7GmzG9v@Zo{6F|yv&W9_Ky"
    "+`M7YojTR4elgId)%UQedz?w5`y7c3B$H(S&8E(Gjk>8zs$1}FI^0HaM3KdXm2&ZFu_WFoEiBKK*2U|^b#d-yd39lh4OuR(l*dI&"
    "*>ZZfIWR6(47nlBFRjiWJLR0s!=Xd2>)Xz+I)~t!4uuH_f*{Bl;`9D+h)aI=tVV59sahBi1o__(I#>;{?Rj5tw<kR0VF;2C)6@*z"
    "t5H+Y*sEtok%b6^%(_026F%c13ZOMIs!}l}vms<4qDnS<g>0mshg6*7($jx@`pH15HN&r03SAIk>MWbq1b#3etO2=|AlBk_xEhbR"
    "cBBHHMT4`GgZ`g#ys{AUbh-_*F<y8X2raz?`FMw4*Qlp48=dh~%!e+71ws}>7b2{P5n&j}&fCo86NU>f0;v{KknHue9Cgllon!nU"
    "c_+w1xu5q!SvoC}IbR@C(6Lpk7iz{XHPihd_(J*6oZS}!Y>I<HZ;B7dX>(M3bCe*c8kUt_glng+RN)zjGSQ@Ry=p6lE`%UZyOb?-"
    "L(rD2Z6ORnO|oy@>*bkIA71o~ItaocIngSJL)4<?ZKX;x&Z$G_fQW5MicU=!hCc6+qFc74I~7^zgbugIL>5|Rnv%ZF%;caCx|q0Y"
    "n5w*CDeqC%$U{GLvqsyf8LF|>$jG&3*EsaGw`Pt83^bM6(v~Ge(*OY=lJij!z94WLB8E-X4NXn7g@{kYn;~+<jI^g%jwhy}sz%*T"
    "L?P@vqB~A36VLf#+08;w*Iv=2y>X37dZOh7>z%0?if&tM5D~Ji)mj{Z7kasmH@<XMEACZNq&-o;zrxb_K7lu$)Y#x-#{Bt|IdYB@"
    "#-NYcIgzWm9=B57buQ;QckeQBva8}{*MoDGT|W@m{)Yu4iHp7kV>`|f+E&Z!b(~txzI0RS<Zpj}!tw11clc<hm2hswpKw1r2{#F0"
    "lkQ5U{O`v6ewU3oAh7mCKJ$OKUA&BPl(xn{o>#6tIo`F$2@UD_jbj&rAP9mW2!bF8f*|LIP7+8G_a6)4*7^S@j$H_XAP9mW2!bF8"
    "f}A~u3BR11o|&oUH!n@*CiD3`m8Gmy&E_^Q%h}DT>6z>lMhQU>1UYxSf9EMH{Ceug=-rPnun2-62!fnt{sN9tUUC"
)
"""A journal of the first form: one byte of an entry's length was changed, and SQLite cannot allocate what it claims."""


@pytest.mark.parametrize("begins", [2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", ["gauge", "sum"])
def test_a_stream_that_began_beyond_what_64_bits_hold_is_no_error(kind: str, begins: int) -> None:
    request = third_party_request([{"name": "load", "value": 1.0}], kind=kind)
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for point in [*metric.gauge.data_points, *metric.sum.data_points]:
            point.start_time_unix_nano = begins
    TARGETS["metrics"](request.SerializeToString())
