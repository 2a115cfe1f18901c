"""What the shipper and its delivery processes say to each other, through a pair of sockets.

The shipper reads the spool, decides and writes the state; a delivery process (``worker``) reads both, and answers.
"""

from __future__ import annotations

import msgspec

from autotrace.ship.delivery.carrier import Receipt
from autotrace.ship.index.summary import Answer


class Summarise(msgspec.Struct, tag=True):
    """Assemble a complete trace and summarise it: answered by ``Summarised``."""

    ticket: int
    trace_id: str
    final: bool


class Deliver(msgspec.Struct, tag=True):
    """Deliver traces to a backend: answered by ``Delivered``."""

    number: int
    backend: str
    wanted: list[tuple[str, int]]


class Admitted(msgspec.Struct, tag=True):
    """The answer to ``Admit``."""

    admitted: bool


class Summarised(msgspec.Struct, tag=True):
    """What the index keeps of a trace."""

    answer: Answer


class Delivered(msgspec.Struct, tag=True):
    """What came of a parcel."""

    number: int
    receipt: Receipt
    note: str
    """For the user: why texts could not be decoded."""


class Admit(msgspec.Struct, tag=True):
    """Asks whether the budgets allow a trajectory to be sent: answered by ``Admitted``, and waited for."""

    backend: str
    trace_id: str
    group: str
    step: int | None
    sizes: dict[str, int]


Order = Summarise | Deliver | Admitted
Reply = Summarised | Delivered | Admit

encode = msgspec.msgpack.Encoder().encode
orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
