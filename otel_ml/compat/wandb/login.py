"""`wandb.login()` and `wandb.api`: which key the exporter `wandb` finds."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Api", "api", "login"]

_KEY = "WANDB_API_KEY"
_SERVER = "https://api.wandb.ai"


class Api:
    """What scripts ask of `wandb.api`: whether there is a key, and whose."""

    @property
    def api_key(self) -> str | None:
        """The key of `WANDB_API_KEY`, or that of `wandb login`; None where there is none."""
        return os.environ.get(_KEY) or _key_of_netrc()

    @property
    def api_url(self) -> str:
        """Address of W&B's server."""
        return os.environ.get("WANDB_BASE_URL", _SERVER)

    @property
    def default_entity(self) -> str | None:
        """The value of `WANDB_ENTITY`: the server is not asked."""
        return os.environ.get("WANDB_ENTITY")

    def settings(self, key: str | None = None) -> Any:
        """Return what the environment says, or one of it."""
        known: Mapping[str, str | None] = {
            "entity": self.default_entity,
            "project": os.environ.get("WANDB_PROJECT"),
            "base_url": self.api_url,
        }
        return known if key is None else known.get(key)


api: Api = Api()


def login(
    key: str | None = None,
    relogin: bool | None = None,
    host: str | None = None,
    force: bool | None = None,
    timeout: int | None = None,
    verify: bool = True,
    referrer: str | None = None,
    prompt: bool = True,
    anonymous: Any = None,
) -> bool:
    """Return whether there is a key. One that is given is for the exporter `wandb` of runs that begin from now on.

    The server is not asked, nothing is written to a file: key and host become the variables `WANDB_API_KEY` and
    `WANDB_BASE_URL` of this process, which the exporter inherits.
    """
    del relogin, force, timeout, verify, referrer, prompt, anonymous
    if key:
        os.environ[_KEY] = key
    if host:
        os.environ["WANDB_BASE_URL"] = host
    return api.api_key is not None


def _key_of_netrc() -> str | None:
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(urlsplit(api.api_url).hostname or "")
    # A file that is not UTF-8 is a ValueError.
    except (OSError, ValueError, netrc.NetrcParseError):
        return None
    return known[2] if known else None
