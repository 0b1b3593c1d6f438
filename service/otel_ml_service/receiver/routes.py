"""What the service answers over HTTP: OTLP in, and the state of its runs out (docs/protocol.md §4.14)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, Protocol

from google.rpc.status_pb2 import Status

from otel_ml.explanation import explained
from otel_ml.wire.boot_clock import seconds_since_boot
from otel_ml.wire.rendezvous import boot_id
from otel_ml_service.receiver.addresses import is_address
from otel_ml_service.receiver.admission import MAX_REQUEST, RETRY_AFTER_S, Admission, OverloadedError
from otel_ml_service.receiver.compression import decompressed
from otel_ml_service.receiver.decode import SIGNALS, Decoded, Signal, response
from otel_ml_service.receiver.http_message import BadRequestError, Head, Response
from otel_ml_service.receiver.partial_success import UndecodableError
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.telemetry import Measure, Telemetry

__all__ = ["NOTICES_HEADER", "Answer", "Routes", "RunsView", "signal_of"]

NOTICES_HEADER = "otel-ml-notices"

CLOCK_PATH = "/otel_ml/clock"
"""What time it is here; who asks knows when it asked, and when the answer came."""

_PROTOBUF = "application/x-protobuf"
_JSON = "application/json"

_LARGE = 256 * 1024
"""Bodies from here on, as sent or unpacked, are decoded off the loop, so that small requests need not wait for them."""

_SETTLE_S = 0.5
"""How long an account waits for what was just acknowledged: half of what a worker waits for the account."""

_SETTLE_STEP_S = 0.01

_HEALTH, _METRICS, _RUNS, _RUN = "/healthz", "/metrics", "/otel_ml/runs", "/otel_ml/runs/"
_PAGES = frozenset({_HEALTH, _METRICS, _RUNS, CLOCK_PATH})
"""What may be asked for, besides single runs."""

_CONSOLE = "/console"
_DIGITS = 19
"""A number of so many is not a number of a line."""

_BUSY = "As much is under way to the service as it may hold. Send the same request again later."

# Status → google.rpc.Code, in the body of every OTLP/HTTP error.
_RPC_CODES: Mapping[int, int] = {401: 16, 404: 5, 413: 8, 503: 14}
_INVALID_ARGUMENT = 3
"""That of all others."""

_SLUGS: Mapping[int, str] = {401: "unauthenticated", 404: "not-found", 413: "request-too-large", 503: "not-stored"}
"""Status → the section of the catalogue; of all others: `bad-request`."""


_SIGNAL_OF: Mapping[str, Signal] = {f"/v1/{signal}": signal for signal in SIGNALS}

Answer = Callable[[Callable[[], Response]], None]
"""Takes, on any thread, what makes the answer to a request, to be called on the receiver's thread."""


class RunsView(Protocol):
    """What the service tells about its runs; called on the receiver's thread."""

    @property
    def is_settled(self) -> bool:
        """Whether the accounts include everything that was acknowledged."""

    def runs(self) -> list[Mapping[str, Any]]:
        """Return every run the service holds."""

    def run(self, experiment: str, writer: str | None, *, speaker: str | None) -> Mapping[str, Any] | None:
        """Return one run, with `last` where a writer asks; None where there is no such run.

        Args:
            experiment: id of the run.
            writer: instance of the writer that asks.
            speaker: who asks, where it would print the notices.
        """

    def console(self, experiment: str, taken: int) -> Mapping[str, Any] | None:
        """Return what the exporter `console` of a run wrote and nobody has printed; None where it prints itself.

        Args:
            experiment: id of the run.
            taken: the number of the first line that has not been printed.
        """

    def measures(self) -> Iterable[Measure]:
        """Return the self-telemetry of the runs, and of what waits for them."""

    def notices(self, experiments: Iterable[str]) -> int:
        """Return how many notices these runs have."""


class Routes:
    """Answers requests.

    Args:
        tokens: of which every request must carry one, if there are any.
        any_host: whether requests that name another host than this one are answered. Where nobody has to show a token
            or a certificate they are not: a web page may let its own name point here (DNS rebinding).
        version: of the service, for `/healthz`.
    """

    def __init__(
        self,
        admission: Admission,
        runs: RunsView,
        telemetry: Telemetry,
        *,
        tokens: Tokens,
        version: str,
        any_host: bool,
    ) -> None:
        self._admission = admission
        self._runs = runs
        self._telemetry = telemetry
        self._tokens = tokens
        self._version = version
        self._any_host = any_host
        self._large = ThreadPoolExecutor(2, thread_name_prefix="otel-ml-decode")

    def close(self) -> None:
        """Stop the threads of large requests."""
        self._large.shutdown(wait=False)

    def refusal(self, head: Head) -> Response | None:
        """Return why a request is refused before its body is read, or None."""
        # First: who has no token does not learn what is here.
        if not self._tokens.accept(head.authorization):
            self._telemetry.count("refused", reason="unauthenticated")
            return _error(head, 401, "The bearer token is missing or wrong. Set OTEL_ML_TOKEN to the service's.")
        if not (self._any_host or head.host in {"", "localhost"} or is_address(head.host)):
            self._telemetry.count("refused", reason="misdirected")
            return _error(head, 421, f"Without OTEL_ML_TOKEN requests to localhost are answered, not to {head.host!r}.")
        if head.path not in _SIGNAL_OF:
            return None
        if head.method != "POST":
            self._telemetry.count("refused", reason="wrong method")
            return _error(head, 405, f"{head.path} takes POST, not {head.method}.")
        if head.media_type not in {_PROTOBUF, _JSON}:
            self._telemetry.count("refused", reason="wrong content type")
            return _error(head, 415, f"content-type must be {_PROTOBUF} or {_JSON}, got {head.media_type!r}.")
        return None

    def export(self, head: Head, signal: Signal, body: bytes, answer: Answer) -> None:
        """Take an OTLP request that was not refused; `answer` is called once, when it is stored or cannot be."""
        plain = _plain_if_small(head, body)
        if plain is not None:
            self._take(head, signal, plain, answer)
            return
        try:
            self._large.submit(self._unpack, head, signal, body, answer)
        except RuntimeError as error:  # the service is stopping
            answer(partial(_unavailable, head, error))

    async def look(self, head: Head) -> Response:
        """Answer a request that was not refused, and brings no OTLP."""
        if head.method not in {"GET", "HEAD"}:
            if not (head.path in _PAGES or head.path.startswith(_RUN)):  # as of an endpoint that ends with /v1/metrics
                self._telemetry.count("refused", reason="wrong path")
                return _nothing_at(head)
            return _error(head, 405, f"{head.path} takes GET, not {head.method}.")
        if head.path.startswith(_RUNS) and not head.path.endswith(_CONSOLE):
            await self._settled()
        return self._look(head)

    def overloaded(self, head: Head) -> Response:
        """Return the answer to a request whose body finds no room; the sender comes back."""
        self._telemetry.count("refused", reason="overloaded")
        return _unavailable(head, OverloadedError(_BUSY))

    def unreadable(self, head: Head | None, error: BadRequestError) -> Response:
        """Return the answer to a request that could not be read to its end."""
        self._telemetry.count("refused", reason="too large" if error.status == 413 else "malformed")
        return _error(head, error.status, str(error))

    async def _settled(self) -> None:
        """Wait a moment for what was just acknowledged: whoever shut down and asks then finds itself in the account."""
        deadline = asyncio.get_running_loop().time() + _SETTLE_S
        while not self._runs.is_settled and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_SETTLE_STEP_S)

    def _unpack(self, head: Head, signal: Signal, body: bytes, answer: Answer) -> None:
        try:
            plain = decompressed(body, head.headers.get("content-encoding", ""), MAX_REQUEST)
        except Exception as error:  # noqa: BLE001 (the sender must get an answer)
            answer(partial(self._not_taken, head, error))
        else:
            self._take(head, signal, plain, answer)

    def _take(self, head: Head, signal: Signal, plain: bytes, answer: Answer) -> None:
        def stored(decoded: Decoded, error: Exception | None) -> None:
            # A function, and not the answer itself: it asks the runs, which only the receiver's thread may do
            # (`RunsView`).
            answer(lambda: self._acknowledgement(head, decoded) if error is None else _unavailable(head, error))

        try:
            self._admission.take(signal, plain, stored, json=head.media_type == _JSON)
        except Exception as error:  # noqa: BLE001 (the sender must get an answer)
            answer(partial(self._not_taken, head, error))

    def _acknowledgement(self, head: Head, decoded: Decoded) -> Response:
        notices = self._runs.notices(decoded.observations)
        if head.media_type == _PROTOBUF and not decoded.rejections.total:
            return _all_taken(notices)
        message = response(decoded.signal, decoded.rejections)
        return Response(200, *_encoded(message, head.media_type), _with(notices))

    def _not_taken(self, head: Head, error: Exception) -> Response:
        if not isinstance(error, (BadRequestError, UndecodableError)):
            return _unavailable(head, error)  # whatever else went wrong may go right later: never a permanent status
        status = error.status if isinstance(error, BadRequestError) else 400
        self._telemetry.count("refused", reason="too large" if status == 413 else "undecodable")
        return _error(head, status, f"Cannot take this request: {error}")

    def _look(self, head: Head) -> Response:
        path = head.path
        if path == _HEALTH:
            return _json({"service": "otel_ml", "version": self._version})
        if path == _METRICS:
            text = self._telemetry.prometheus(self._runs.measures())
            return Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        if path == CLOCK_PATH:
            return _json({"boot": boot_id(), "boot_time": seconds_since_boot(), "time": time.time()})
        if path == _RUNS:
            return _json(self._runs.runs())
        if path.startswith(_RUN):
            experiment = path.removeprefix(_RUN)
            if experiment.endswith(_CONSOLE):
                return self._console(head, experiment.removesuffix(_CONSOLE))
            run = self._runs.run(experiment, head.query.get("writer"), speaker=head.query.get("speaker"))
            if run is not None:
                return _json(run)
            return _error(head, 404, f"No run {experiment!r} here. GET /otel_ml/runs lists them.")
        return _nothing_at(head)

    def _console(self, head: Head, experiment: str) -> Response:
        found = self._runs.console(experiment, _number(head.query.get("after", "")))
        if found is None:
            return _error(head, 404, f"The service of {experiment!r} prints its console itself, or has no such run.")
        return _json(found)


def _nothing_at(head: Head) -> Response:
    known = f"/v1/metrics, /v1/traces, /v1/logs, {_HEALTH}, {_METRICS}, {_RUNS}"
    return _error(head, 404, f"Nothing is at {head.path!r}. This is an otel_ml service; it answers at {known}.")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 0


def _plain_if_small(head: Head, body: bytes) -> bytes | None:
    """Return a body without its encoding; None where it is large, or cannot be unpacked. Kilobytes may hold 64 MiB."""
    if len(body) >= _LARGE:
        return None
    try:
        return decompressed(body, head.headers.get("content-encoding", ""), _LARGE)
    except BadRequestError:
        return None


def signal_of(head: Head) -> Signal | None:
    """Return which signal's OTLP a request brings, if it brings any."""
    return _SIGNAL_OF.get(head.path)


def _unavailable(head: Head, error: Exception) -> Response:
    text = str(error) if isinstance(error, OverloadedError) else f"Not stored: {error or type(error).__name__}"
    answer = _error(head, 503, text)
    return Response(answer.status, answer.body, answer.content_type, {"retry-after": str(RETRY_AFTER_S)})


def _error(head: Head | None, status: int, message: str) -> Response:
    message = explained(message, _SLUGS.get(status, "bad-request"))
    media = head.media_type if head else ""
    if media not in {_PROTOBUF, _JSON}:
        return Response(status, f"{message}\n".encode())
    return Response(status, *_encoded(Status(code=_RPC_CODES.get(status, _INVALID_ARGUMENT), message=message), media))


def _encoded(message: Any, media: str) -> tuple[bytes, str]:
    if media == _JSON:
        from google.protobuf import json_format

        return json_format.MessageToJson(message, indent=None).encode(), _JSON
    return message.SerializeToString(), _PROTOBUF


@lru_cache(maxsize=64)
def _all_taken(notices: int) -> Response:
    """Return what nearly every request is answered."""
    return Response(200, b"", _PROTOBUF, _with(notices))  # an empty message has no bytes


def _with(notices: int) -> Mapping[str, str]:
    return {NOTICES_HEADER: str(notices)}


def _json(content: object) -> Response:
    return Response(200, json.dumps(content).encode() + b"\n", _JSON)
