"""Let the adapter of a library do more than record the calls of a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Follower:
    """Hooks of a target (``Probe.follower``).

    The hooks run on the caller's thread, inside the guard that counts failures and gives up on the target after too
    many. ``call`` is a ``context.RetainingCall``, untyped here because an open call knows its probe.
    """

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tells whether this call is recorded at all. Also asked, to no effect, about calls that are only counted."""
        return True

    def shows(self, arguments: dict[str, Any]) -> None:
        """Prepare ``arguments`` before paths are read: the hook may replace an argument by the object that paths
        read."""

    def opened(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Note that the call is about to be made. ``arguments``: by name, and ``self``."""

    def holds(self, call: Any, result: Any) -> bool:
        """Tells whether the work that the call began goes on after the call returned; True: the adapter will close the
        call."""
        return False


def follow(call: Any, probe: Any, follower: Follower, arguments: dict[str, Any]) -> None:
    """Show the follower the call. A follower that fails is not asked about the end: the call ends like any other
    call."""
    try:
        follower.opened(call, arguments)
        call.followed = True
    except Exception as error:
        probe.trouble("follow", error)


def held(call: Any, result: Any) -> bool:
    """Tells whether the follower closes the call, which returned ``result``."""
    probe = call.probe
    return (
        probe is not None
        and probe.follower is not None
        and bool(probe.tried("hold", probe.follower.holds, call, result))
    )
