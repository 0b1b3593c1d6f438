"""OTLP/JSON → the same protobuf messages.

It differs from protobuf's own JSON mapping in two ways (OTLP specification, “JSON Protobuf Encoding”):
trace and span ids are hexadecimal, and unknown fields are ignored.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, TypeVar

from otel_ml_service.receiver.partial_success import UndecodableError

__all__ = ["parse_json"]

M = TypeVar("M")

_IDS = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})
_INFINITIES = {"+Inf": "Infinity", "Inf": "Infinity", "+Infinity": "Infinity", "-Inf": "-Infinity"}
_DOUBLES = frozenset({
    "asDouble", "doubleValue", "sum", "min", "max", "zeroThreshold", "value", "quantile",
    "as_double", "double_value", "zero_threshold",
})  # fmt: skip


def parse_json(body: bytes, message: M) -> M:
    """Fill `message` from OTLP/JSON and return it.

    Raises:
        UndecodableError: not JSON, or not of this message.
    """
    from google.protobuf import json_format

    try:
        content = _translated(json.loads(body), "")
        if not isinstance(content, dict):
            raise UndecodableError(f"the body is not OTLP/JSON: expected an object, got {type(content).__name__}.")
        json_format.ParseDict(content, message, ignore_unknown_fields=True)  # type: ignore[type-var]
    except (ValueError, json_format.ParseError, RecursionError) as error:
        raise UndecodableError(f"the body is not OTLP/JSON: {str(error)[:200]}") from error
    return message


def _translated(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _translated(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_translated(item, key) for item in value]
    if isinstance(value, str):
        if key in _IDS:
            # Bytes are base64 in protobuf's own mapping.
            return base64.b64encode(bytes.fromhex(value)).decode("ascii")
        # protobuf's mapping knows Infinity alone; NaN is the same in both.
        return _INFINITIES.get(value, value) if key in _DOUBLES else value
    if isinstance(value, float) and not math.isfinite(value):
        # Python's json accepts the bare literals; protobuf's mapping wants them quoted.
        return json.dumps(value)
    return value
