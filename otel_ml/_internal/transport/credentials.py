"""Who a sender says it is: the endpoint's headers, and the token of a file, which may change while a job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from otel_ml._internal.transport.answer import Answer
from otel_ml.config import Endpoint
from otel_ml.variable import token

__all__ = ["Credentials"]


class Credentials:
    """The headers of every request.

    Args:
        endpoint: its `token_file` is read when first needed, and again by `renew()`; a header `authorization` of its
            own wins.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._token: str | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case, and values."""
        if self._token is None:
            self._token = self._read()
        shown = {"authorization": f"Bearer {self._token}"} if self._token else {}
        return {**shown, **self._endpoint.headers}

    def renew(self) -> bool:
        """Read the file again; return whether the headers are others now."""
        before = self.headers
        # A file that is empty or missing, as while it is replaced, leaves the token as it was.
        self._token = self._read() or self._token
        return self.headers != before

    def again_where_denied(self, post: Callable[[], Answer]) -> Answer:
        """Return the answer to a request; one that was denied is sent again where the token has changed."""
        answer = post()
        # Once more and no further: where the new token is denied, too, the answer says to wait (`denied()`).
        return post() if answer.obstacle == "receiver-denied" and self.renew() else answer

    def _read(self) -> str:
        """Return the first token of the file; nothing where there is none, or none that can be sent."""
        if not self._endpoint.token_file:
            return ""
        try:
            lines = Path(self._endpoint.token_file).read_text(encoding="utf-8").split("\n")
            return token(next((line.strip() for line in lines if line.strip()), ""))
        except (OSError, ValueError):
            return ""
