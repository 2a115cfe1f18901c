"""One Weave project: that it exists, its ops, and requests that name it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec

from autotrace.sinks.protocol import Refused
from autotrace.sinks.weave.calls import object_name
from autotrace.sinks.weave.http import ClientError, Connection, host_of

_VIEWER = "query DefaultEntity { viewer { username defaultEntity { name } } }"
_PROJECT = """query Project($name: String!, $entity: String) { project(name: $name, entityName: $entity) { name } }"""
_UPSERT = """mutation UpsertModel($name: String!, $entity: String) {
  upsertModel(input: { name: $name, entityName: $entity }) { model { name } }
}"""


def default_entity(connection: Connection) -> str:
    """Where W&B puts a project that names no entity. Raises ``Refused`` if the key is not valid."""
    viewer = connection.graphql(_VIEWER, {}).get("viewer") or {}
    entity = (viewer.get("defaultEntity") or {}).get("name") or viewer.get("username")
    if not entity:
        raise Refused(
            f"{host_of(connection.login.base_url)} does not know this W&B API key: check WANDB_API_KEY, WANDB_BASE_URL"
        )
    return str(entity)


def project_name(name: str) -> str:
    """``name`` without the characters W&B forbids in a project, at most 128 long."""
    return re.sub(r"[/\\#?%:]", "-", name).strip()[:128] or "autotrace"


class Project:
    """``entity/name``; created on W&B at its first use if it does not exist."""

    def __init__(self, connection: Connection, entity: str, name: str) -> None:
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
        """Reference of the op ``name``. Stored by content: every process that creates it gets the same one."""
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
        """Reference of the object that stands for the fact ``name`` in Weave's Scores column."""
        name = object_name(name)
        if name not in self._objects:
            val = {"name": name, "description": "A fact about a trajectory, recorded by autotrace."}
            digest = self._create(name, val)
            self._objects[name] = f"weave:///{self.id}/object/{name}:{digest}"
        return self._objects[name]

    def call_ref(self, call_id: str) -> str:
        """Reference of a call."""
        return f"weave:///{self.id}/call/{call_id}"
