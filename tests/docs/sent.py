"""What OTLP requests have that the registry in `semconv/` does not say, or says otherwise."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.semconv import attributes as stable
from opentelemetry.semconv._incubating import attributes as incubating

from tests.docs.registry import definitions, type_of

__all__ = ["attributes_in", "contradictions"]

_KINDS = {
    "string_value": "string",
    "int_value": "int",
    "double_value": "double",
    "bool_value": "boolean",
    "array_value": "string[]",
    "kvlist_value": "any",
}
"""Field of an OTLP value → type of the registry."""

Definition = Mapping[str, Any]


class _Signal(NamedTuple):
    """A metric, a span or an event as it was sent.

    Attributes:
        definition: what the registry says of it; None where it says nothing.
        form: what the registry calls instrument and unit, or kind.
        attributes: of the signal, its points or links, and of the scope of a metric.
    """

    name: str
    definition: Definition | None
    form: Mapping[str, str]
    attributes: Iterable[Any]


def contradictions(
    messages: Iterable[Any], *, metrics: Collection[str], timers: Collection[str], labels: Collection[str] = ()
) -> list[str]:
    """Return a sentence for each way in which what was sent is not what the registry says, each once.

    Args:
        messages: decoded requests.
        metrics: names that the program gave its own metrics.
        timers: and its timers, whose metrics and spans are like those of otel_ml's own timers.
        labels: and what tells its series apart, such as a role.
    """
    timer = definitions("metrics")["time/step"]
    known = {**definitions("metrics"), **{f"time/{name}": timer for name in timers}}
    of_others = {*labels, *_opentelemetry()}
    found: set[str] = set()
    for message in messages:
        found.update(_typed_otherwise(one) for one in attributes_in(message) if one.key not in of_others)
        for signal in [*_metrics(message, metrics, known), *_spans(message, known), *_events(message)]:
            found.update(f"{signal.name}: {problem}" for problem in _problems(signal, of_others))
    return sorted(found - {""})


def attributes_in(message: Any) -> Iterator[Any]:
    """Yield all attributes in a message, wherever they are."""
    for field, value in message.ListFields():
        if field.name == "attributes":
            yield from value
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from attributes_in(part)


def _typed_otherwise(attribute: Any) -> str:
    said, sent = type_of(attribute.key), _KINDS[attribute.value.WhichOneof("value")]
    if said is None:
        return f"attribute {attribute.key}: not registered"
    return "" if said in {"any", sent} else f"attribute {attribute.key}: registered as {said}, sent as {sent}"


def _problems(signal: _Signal, of_others: Collection[str]) -> Iterator[str]:
    said = signal.definition
    if said is None:
        yield "not registered"
        return
    for key, sent in signal.form.items():
        if said[key] != sent:
            yield f"{key}: registered as {said[key]!r}, sent as {sent!r}"
    sent_keys = {attribute.key for attribute in signal.attributes}
    for key in sent_keys - {one["ref"] for one in said["attributes"]} - set(of_others):
        yield f"{key} is not among its attributes"


def _metrics(message: Any, own: Collection[str], known: Mapping[str, Definition]) -> Iterator[_Signal]:
    for resource in getattr(message, "resource_metrics", ()):
        for scope in resource.scope_metrics:
            for metric in (metric for metric in scope.metrics if metric.name not in own):
                instrument = metric.WhichOneof("data")
                of_points = [one for point in getattr(metric, instrument).data_points for one in point.attributes]
                form = {"instrument": instrument, "unit": metric.unit}
                attributes = [*scope.scope.attributes, *of_points]
                yield _Signal(f"metric {metric.name}", known.get(metric.name), form, attributes)


def _spans(message: Any, metrics: Mapping[str, Definition]) -> Iterator[_Signal]:
    known = definitions("spans")
    for resource in getattr(message, "resource_spans", ()):
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            if any(attribute.key == "ml.timer.level" for attribute in span.attributes):
                said = known["otel_ml.timer"] if f"time/{span.name}" in metrics else None
            else:
                said = known.get(f"otel_ml.{span.name}")
            kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower()
            of_links = [one for link in span.links for one in link.attributes]
            yield _Signal(f"span {span.name}", said, {"kind": kind}, [*span.attributes, *of_links])


def _events(message: Any) -> Iterator[_Signal]:
    for resource in getattr(message, "resource_logs", ()):
        for record in (record for scope in resource.scope_logs for record in scope.log_records):
            said = definitions("events").get(record.event_name)
            yield _Signal(f"event {record.event_name}", said, {}, record.attributes)


@functools.cache
def _opentelemetry() -> frozenset[str]:
    """Return the attributes of OpenTelemetry's own conventions, which ours do not define again."""
    return frozenset(
        value
        for package in (stable, incubating)
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for name, value in vars(importlib.import_module(module.name)).items()
        if name.isupper() and isinstance(value, str)
    )
