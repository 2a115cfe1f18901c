"""Connect to W&B: requests with our key, and answers as values or as the protocol's errors; and hold a Weave project.

A project exists on W&B, has ops, and names requests. No text that may hold prompts or keys gets into a message: only
the server's own reason is kept of an error's body, never the values that a validation error repeats.
"""

from __future__ import annotations

import configparser
import netrc
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlparse

import httpx
import msgspec

from autotrace import __version__
from autotrace.run import files
from autotrace.sinks.answers import BOUNDED
from autotrace.sinks.http import retry_after
from autotrace.sinks.own_keys import keep_secret
from autotrace.sinks.protocol import Refused, Unavailable
from autotrace.sinks.weave.calls import object_name

SAAS = "https://api.wandb.ai"
SAAS_TRACE = "https://trace.wandb.ai"


@dataclass(frozen=True)
class Login:
    """Holds addresses and key. ``repr`` leaves the key out, so that no log gets the key by accident."""

    base_url: str
    trace_url: str
    api_key: str | None = field(repr=False)
    entity: str | None

    @classmethod
    def from_environment(cls) -> Login:
        """Read ``WANDB_BASE_URL`` (else W&B's settings files), ``WF_TRACE_SERVER_URL``, ``WANDB_API_KEY`` (else netrc),
        ``WANDB_ENTITY``. Never raises; a missing value is None."""
        base = (os.environ.get("WANDB_BASE_URL") or _setting("base_url") or SAAS).rstrip("/")
        public = (os.environ.get("WANDB_PUBLIC_BASE_URL") or base).rstrip("/")
        trace = os.environ.get("WF_TRACE_SERVER_URL") or (SAAS_TRACE if public == SAAS else public + "/traces")
        key = os.environ.get("WANDB_API_KEY") or _netrc_key(urlparse(base).netloc)
        entity = os.environ.get("WANDB_ENTITY") or _setting("entity")
        keep_secret(key)
        return cls(base, trace.rstrip("/"), key.strip() if key else None, entity or None)

    def page(self, entity: str, project: str, call_id: str) -> str:
        """Return the address of a call in W&B's pages (the client's ``redirect_call``)."""
        return f"{self._app(entity, project)}/r/call/{call_id}"

    def traces(self, entity: str, project: str) -> str:
        """Return the address of a project's list of traces."""
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
        for path in (Path(folder, "settings"), Path("wandb", "settings")):
            parser.read_string(files.of_this_user(path))
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


TIMEOUT = httpx.Timeout(30.0, connect=10.0)
WAIT = frozenset({408, 425, 429})
"""Client errors that mean "later", as all server errors do."""


class ClientError(Exception):
    """Reports that the server answered 4xx for a reason in the request's content."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}".strip())
        self.status = status


class WeaveConnection:
    """Sends HTTP to the trace server and to W&B's GraphQL. Opens nothing before the first request."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self._client: httpx.Client | None = None

    def post(self, path: str, body: bytes) -> Any:
        """Send JSON to the trace server; return the decoded answer. Raises ``ClientError``, ``Refused`` or
        ``Unavailable``."""
        return self._send(self.login.trace_url + path, content=body, headers={"content-type": "application/json"})

    def upload(self, path: str, project_id: str, name: str, content: bytes) -> Any:
        """Upload a file to the trace server, as multipart form; return the decoded answer."""
        files = {"file": (name, content, "application/octet-stream")}
        return self._send(self.login.trace_url + path, data={"project_id": project_id}, files=files)

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the ``data`` of a GraphQL answer; fields the server failed on are null there."""
        body = msgspec.json.encode({"query": query, "variables": variables})
        url = self.login.base_url + "/graphql"
        answer = self._send(url, content=body, headers={"content-type": "application/json"})
        data = answer.get("data") if isinstance(answer, dict) else None
        return data if isinstance(data, dict) else {}

    def close(self) -> None:
        """Close the pooled connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, url: str, **request: Any) -> Any:
        if self._client is None:
            if not self.login.api_key:
                raise Refused(
                    "no W&B API key: set WANDB_API_KEY, or run `wandb login`, where the shipper runs "
                    f"(looked for {host_of(self.login.base_url)} in the environment and in netrc)"
                )
            try:
                self._client = httpx.Client(auth=("api", self.login.api_key), timeout=TIMEOUT, event_hooks=BOUNDED)
            except (ValueError, httpx.InvalidURL, UnicodeError):
                raise Refused(f"cannot talk to {host_of(url)}: a proxy or key setting is malformed") from None
            self._client.headers["user-agent"] = f"autotrace/{__version__}"
        try:
            answer = self._client.post(url, **request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # Most often a kept-alive connection that the server has closed meanwhile. All our requests may be repeated.
            answer = self._again(url, request)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
            raise Refused(f"{host_of(url)} is not a URL: check WF_TRACE_SERVER_URL and WANDB_BASE_URL") from None
        except httpx.TransportError as error:
            raise Unavailable(f"{host_of(url)} does not answer ({type(error).__name__})") from None
        return _value(answer)

    def _again(self, url: str, request: dict[str, Any]) -> httpx.Response:
        assert self._client is not None
        try:
            return self._client.post(url, **request)
        except httpx.TransportError as error:
            raise Unavailable(f"{host_of(url)} drops the connection ({type(error).__name__})") from None


def _value(answer: httpx.Response) -> Any:
    status, host = answer.status_code, host_of(str(answer.request.url))
    if status < 300:
        try:
            return msgspec.json.decode(answer.content) if answer.content.strip() else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Refused(f"{host} answered {status} without JSON: is this the trace server?") from None
    if status in WAIT or status >= 500:
        raise Unavailable(f"{host} answered {status}", retry_after(answer.headers.get("retry-after")))
    if status in (401, 403):
        raise Refused(f"{host} answered {status}: this W&B API key is not valid there, or may not write to the project")
    if status < 400:
        raise Refused(f"{host} answers with a redirect ({status}): write the final address into WF_TRACE_SERVER_URL")
    raise ClientError(status, reason_of(answer.content))


def reason_of(content: bytes) -> str:
    """Return the server's own words in an error body, without the values that validation errors quote."""
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    if not isinstance(body, dict):
        return ""
    detail = body.get("reason") or body.get("detail") or body.get("error") or ""
    if isinstance(detail, list):
        mistakes = [
            ".".join(map(str, item.get("loc", ()))) + ": " + str(item.get("type", ""))
            for item in detail[:3]
            if isinstance(item, dict)
        ]
        return "; ".join(mistakes)[:300]
    return str(detail)[:300] if isinstance(detail, str) else ""


def host_of(url: str) -> str:
    """Return scheme, host and port, for messages: anything else of an address may be a secret."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return "the configured W&B address"
    return f"{parsed.scheme}://{parsed.host}" + (f":{parsed.port}" if parsed.port else "")


_VIEWER = "query DefaultEntity { viewer { username defaultEntity { name } } }"
_PROJECT = """query Project($name: String!, $entity: String) { project(name: $name, entityName: $entity) { name } }"""
_UPSERT = """mutation UpsertModel($name: String!, $entity: String) {
  upsertModel(input: { name: $name, entityName: $entity }) { model { name } }
}"""


def default_entity(connection: WeaveConnection) -> str:
    """Return the entity of a project that names no entity. Raises ``Refused`` if the key is not valid."""
    viewer = connection.graphql(_VIEWER, {}).get("viewer") or {}
    entity = (viewer.get("defaultEntity") or {}).get("name") or viewer.get("username")
    if not entity:
        raise Refused(
            f"{host_of(connection.login.base_url)} does not know this W&B API key: check WANDB_API_KEY, WANDB_BASE_URL"
        )
    return str(entity)


def project_name(name: str) -> str:
    """Return ``name`` without the characters W&B forbids in a project, at most 128 long."""
    return re.sub(r"[/\\#?%:]", "-", name).strip()[:128] or "autotrace"


class Project:
    """Holds ``entity/name``, created on W&B at the first use if missing."""

    def __init__(self, connection: WeaveConnection, entity: str, name: str) -> None:
        self._connection = connection
        self.entity = entity
        self.name = name
        self.id = f"{entity}/{name}"
        self.path = f"{quote(entity, safe='')}/{quote(name, safe='')}"
        self._ops: dict[tuple[str, str], str] = {}
        self._objects: dict[str, str] = {}
        self._ensure()

    def _ensure(self) -> None:
        variables = {"name": self.name, "entity": self.entity}
        try:
            if self._connection.graphql(_PROJECT, variables).get("project"):
                return
            if (self._connection.graphql(_UPSERT, variables).get("upsertModel") or {}).get("model"):
                return
        except ClientError as error:
            if error.status == 404:  # a trace server on its own, without W&B's other services
                return
            raise Refused(f"W&B did not answer whether the project {self.id} exists: {error}") from None
        raise Refused(f"no W&B project {self.id}, and this API key may not create it: check entity and name")

    def op(self, name: str, key: str) -> str:
        """Return the reference of the op ``name``. Stored by content: every process that creates the op gets the
        same."""
        reference = self._ops.get((name, key))
        if reference is None:
            reference = self._ops[name, key] = self._create_op(object_name(name), key)
        return reference

    def _create_op(self, name: str, key: str) -> str:
        # The text must stay the same for ever: another text is another version of the op.
        source = f'"""Recorded by autotrace; the code itself is where it was: {key}"""\n'
        try:
            file = self._upload(source.encode())
            val = {"_type": "CustomWeaveType", "weave_type": {"type": "Op"}, "files": {"obj.py": file}}
            return f"weave:///{self.id}/op/{name}:{self._create(name, val)}"
        except (ClientError, KeyError, TypeError):
            return name  # a plain name is accepted as well, and only lacks a page of its own

    def _upload(self, content: bytes) -> str:
        for path in ("/file/create", "/files/create"):  # servers before 2026 know the second
            try:
                return str(self._connection.upload(path, self.id, "obj.py", content)["digest"])
            except ClientError as error:
                if error.status != 404 or path == "/files/create":
                    raise
        raise AssertionError

    def _create(self, name: str, val: dict[str, Any]) -> str:
        body = {"obj": {"project_id": self.id, "object_id": name, "val": val}}
        return str(self._connection.post("/obj/create", msgspec.json.encode(body))["digest"])

    def score(self, name: str) -> str:
        """Return the reference of the object that represents the fact ``name`` in Weave's Scores column."""
        name = object_name(name)
        if name not in self._objects:
            val = {"name": name, "description": "A fact about a trajectory, recorded by autotrace."}
            self._objects[name] = f"weave:///{self.id}/object/{name}:{self._create(name, val)}"
        return self._objects[name]
