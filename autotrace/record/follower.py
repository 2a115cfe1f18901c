"""What the adapter of a library does besides recording the calls of a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Follower:
    """Hooks of one target (``Probe.follower``).

    Run on the caller's thread, inside the guard that counts failures and gives up on the target after too many. What
    it is given is a ``context.RetainingCall``, untyped here because an open call knows its probe.
    """

    def admits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether this call is recorded at all. Also asked, to no effect, of calls that are only counted."""
        return True

    def shows(self, arguments: dict[str, Any]) -> None:
        """Before paths are read: what they are to find in an argument may be put in its place."""

    def opened(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """The call is about to be made. ``arguments``: by name, and ``self``."""

    def holds(self, call: Any, result: Any) -> bool:
        """The call returned. True: what it began goes on, and the adapter will close the call."""
        return False


def follow(call: Any, probe: Any, follower: Follower, arguments: dict[str, Any]) -> None:
    """Show the follower the call. One that fails is not asked about its end: the call ends as any other."""
    try:
        follower.opened(call, arguments)
        call.followed = True
    except Exception as error:
        probe.trouble("follow", error)


def held(call: Any, result: Any) -> bool:
    """Whether the follower closes the call, which returned ``result``."""
    probe = call.probe
    return (
        probe is not None
        and probe.follower is not None
        and bool(probe.tried("hold", probe.follower.holds, call, result))
    )
