"""W&B's address and the user's API key, looked up in the same places as W&B's own client does."""

from __future__ import annotations

import configparser
import netrc
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlparse

SAAS = "https://api.wandb.ai"
SAAS_TRACE = "https://trace.wandb.ai"


@dataclass(frozen=True)
class Login:
    """Addresses and key. The key is left out of ``repr``, so that it reaches no log by accident."""

    base_url: str
    trace_url: str
    api_key: str | None = field(repr=False)
    entity: str | None

    @classmethod
    def from_environment(cls) -> Login:
        """``WANDB_BASE_URL`` (else W&B's settings files), ``WF_TRACE_SERVER_URL``, ``WANDB_API_KEY`` (else netrc),
        ``WANDB_ENTITY``. Never raises; what is missing is None."""
        base = (os.environ.get("WANDB_BASE_URL") or _setting("base_url") or SAAS).rstrip("/")
        public = (os.environ.get("WANDB_PUBLIC_BASE_URL") or base).rstrip("/")
        trace = os.environ.get("WF_TRACE_SERVER_URL") or (SAAS_TRACE if public == SAAS else public + "/traces")
        key = os.environ.get("WANDB_API_KEY") or _netrc_key(urlparse(base).netloc)
        entity = os.environ.get("WANDB_ENTITY") or _setting("entity")
        return cls(base, trace.rstrip("/"), key.strip() if key else None, entity or None)

    def page(self, entity: str, project: str, call_id: str) -> str:
        """Address of a call in W&B's pages (the client's ``redirect_call``)."""
        return f"{self._app(entity, project)}/r/call/{call_id}"

    def traces(self, entity: str, project: str) -> str:
        """Address of a project's list of traces."""
        return f"{self._app(entity, project)}/weave/traces"

    def _app(self, entity: str, project: str) -> str:
        app = os.environ.get("WANDB_APP_URL") or self.base_url
        if "://api.wandb.ai" in app:
            app = app.replace("://api.", "://", 1)
        elif "://api." in app:
            app = app.replace("://api.", "://app.", 1)
        app = re.sub(r"//[^/@]*@", "//", app).rstrip("/")
        return f"{app}/{quote(entity)}/{quote(project)}"


def _setting(name: str) -> str | None:
    folder = os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read([Path(folder, "settings"), Path("wandb", "settings")])
        return parser.get("default", name, fallback=None)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None


def _netrc_key(host: str) -> str | None:
    configured = os.environ.get("NETRC")
    for path in [Path(configured).expanduser()] if configured else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            credentials = netrc.netrc(path).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            continue
        if credentials and credentials[2]:
            return credentials[2]
    return None
