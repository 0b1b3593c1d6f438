"""The HTTP proxy that the environment names: `https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from otel_ml._internal.transport.url import Target

__all__ = ["FindProxy", "Proxy", "directly", "proxy_for"]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes:
        headers: what it is to be told, such as who we say we are.
    """

    target: Target
    headers: Mapping[str, str] = field(repr=False)

    @property
    def shown(self) -> str:
        """Its address as messages name it."""
        return f"{self.target.scheme}://{self.target.authority}"


FindProxy = Callable[[Target], "Proxy | None"]


def directly(target: Target) -> Proxy | None:
    """Return no proxy: services of the job announce addresses of their own network."""
    del target
    return None


def proxy_for(target: Target) -> Proxy | None:
    """Return the proxy through which the environment has `target` reached; None of this host, and of SOCKS.

    Raises:
        OSError: what the environment says is not a proxy's URL.
    """
    if target.is_loopback or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    # 20 ms: where it is needed. typeshed knows the second one on macOS only.
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    proxies = getproxies_environment()
    url = proxies.get(target.scheme) or proxies.get("all")
    if not url or proxy_bypass_environment(target.authority, proxies):
        return None
    return _parsed(url)


def _parsed(url: str) -> Proxy | None:
    try:
        target = Target.parse(url)
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if target.scheme not in {"http", "https"}:
            return None
        # As RFC 7617 has it; in a URL signs such as `@` are written with a percent sign.
        who = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        told = {"proxy-authorization": f"Basic {base64.b64encode(who.encode()).decode()}"} if parts.username else {}
    except ValueError:
        # Without the URL: a password may be in it.
        raise OSError("the proxy that the environment names is not a URL such as http://proxy:3128") from None
    return Proxy(target, told)
