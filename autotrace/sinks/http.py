"""Ask servers for a short answer, and read how long a server asks clients to wait."""

from __future__ import annotations

import base64
import contextlib
import http.client
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from autotrace.redact.masking import masked_uri
from autotrace.sinks.backend import Health

TIMEOUT = 5.0
"""Seconds."""


def probe(url: str, setting: str) -> Health:
    """Report the result of ``GET url``. Any answer counts, also a 404, because then the server exists.

    ``setting`` names the option or variable that holds the address. ``user:password@`` of the address is sent as basic
    authentication and not shown.
    """
    shown = masked_uri(url)
    try:
        with OPENER.open(_request(url), timeout=TIMEOUT) as answer:
            return Health(True, f"{shown} answers {answer.status}")
    except urllib.error.HTTPError as error:
        refused = " (it rejected the credentials, or this name of the host)" if error.code in (401, 403) else ""
        return Health(error.code < 500 and not refused, f"{shown} answers {error.code}{refused}")
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return Health(False, f"{shown} does not answer: {reason}; start the server or change {setting}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse redirects."""


OPENER = urllib.request.build_opener(_NoRedirect)
"""Asks only the address that a person gave: ``urllib`` itself sends credentials to the host of a redirect, too."""


def _request(url: str) -> urllib.request.Request:
    """Build the request for ``url``; a header carries ``user:password@``, which ``urllib`` would take for the host."""
    parts = urlsplit(url)
    user, credentials, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), method="GET")
    if credentials:
        encoded = base64.b64encode(unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {encoded}")
    return request


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which holds a number or a date; None for any other text."""
    if not value:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
