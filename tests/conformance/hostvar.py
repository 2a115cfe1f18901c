"""A context variable of the host's, in a module of its own: what is pickled by value must not contain one."""

from __future__ import annotations

from contextvars import ContextVar

host: ContextVar[str] = ContextVar("host", default="nothing")
