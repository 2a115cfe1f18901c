"""Records become spans."""

from __future__ import annotations

from dataclasses import fields

import msgspec
import pytest

from autotrace.record.context import OpenCall
from autotrace.ship.assembly.assembler import Assembly, Callee, Origin
from autotrace.spool.reader import decode
from autotrace.spool.records import FORMAT, MEASURED, Close, Header, Open
from autotrace.trajectory.model import Span


@pytest.mark.parametrize("name", MEASURED)
def test_what_is_measured_has_one_name_all_the_way_and_arrives(name: str) -> None:
    assert name in OpenCall.__struct_fields__
    assert name in {field.name for field in fields(Span)}
    header = Header(FORMAT, "run", "node", 1, "boot", "python", "", 0, 0)
    origin = Origin("node-1-aa", header, lambda: {1: Callee("key", "Agent.run", "agent")}, 0)
    assembly = Assembly()
    for record in (Open(5, b"t" * 16, 0, 1, at=10), Close(5, b"t" * 16, at=20, status="OK", **{name: 7})):
        decoded = decode(msgspec.msgpack.encode(record))
        assert isinstance(decoded, (Open, Close))
        assembly.add(origin, decoded)
    assembled = assembly.finish(lambda process: None, final=False)
    assert assembled is not None and getattr(assembled.spans[0], name) == 7


def test_an_older_record_without_the_newest_fields_is_read() -> None:
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(Close(5, b"t" * 16, at=20, status="OK", items=3)))
    record = decode(msgspec.msgpack.encode(values[:5]))
    assert isinstance(record, Close) and (record.status, record.items) == ("OK", 0)


def test_a_record_begins_with_the_fields_that_0_1_0_wrote() -> None:
    """A new field is appended; those before it keep their positions."""
    close = Close(5, b"t" * 16, 20, "OK", items=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(close))[:14] == [
        "C", 5, b"t" * 16, 20, "OK", None, None, None, None, None, None, 3, 0, 0,
    ]  # fmt: skip
