"""Whether a backend answers, asked with one short request and without writing anything."""

from __future__ import annotations

import base64
import http.client
import os
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit

from autotrace.launch import run_setup
from autotrace.launch.options import Options
from autotrace.redact.masking import masked_uri

TIMEOUT = 5.0


def reach(backend: str, options: Options) -> tuple[bool, str]:
    """``(it answers, what to say)``."""
    if backend == "mlflow":
        return _mlflow(options)
    if backend == "weave":
        return _weave()
    if backend == "otlp":
        endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return _http(endpoint or "http://localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return True, "a file in the run folder"


def _mlflow(options: Options) -> tuple[bool, str]:
    uri, origin = options.tracking_uri, options.origins["tracking_uri"]
    if uri is None:
        return True, "no tracking URI: veRL's own mlflow logger decides, else a SQLite store beside the run folders"
    shown = f"{masked_uri(uri)} ({origin})"
    if uri.startswith(("http://", "https://")):
        return _http(uri.rstrip("/") + "/health", origin)
    if uri.startswith("sqlite:///"):
        path = run_setup.absolute_uri(uri).removeprefix("sqlite:///")
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            return False, f"{shown}: the folder {folder} does not exist"
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            return False, f"{shown}: {path} cannot be written"
        return True, shown + ("" if os.path.exists(path) else ", will be created")
    return True, f"{shown}, not asked (a database)"


def _weave() -> tuple[bool, str]:
    from autotrace.sinks.weave.login import Login

    login = Login.from_environment()
    if not login.api_key:
        return False, f"no API key for {login.base_url}: set WANDB_API_KEY or log in with `wandb login`"
    return _http(login.trace_url, "WF_TRACE_SERVER_URL")


def _http(url: str, origin: str) -> tuple[bool, str]:
    """Any answer counts, also a refusal: then the server is there."""
    shown = masked_uri(url)
    try:
        with urllib.request.urlopen(_request(url), timeout=TIMEOUT) as answer:
            return True, f"{shown} answers {answer.status}"
    except urllib.error.HTTPError as error:
        note = (
            " (not allowed: check the credentials, and mlflow server --allowed-hosts)"
            if error.code in (401, 403)
            else ""
        )
        return error.code < 500 and not note, f"{shown} answers {error.code}{note}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return False, f"{shown} does not answer: {reason}; start the server or change {origin}"


def _request(url: str) -> urllib.request.Request:
    """For ``url``, whose ``user:password@`` goes into a header: ``urllib`` takes it for a part of the host."""
    parts = urlsplit(url)
    user, found, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), method="GET")
    if found:
        words = base64.b64encode(unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {words}")
    return request
