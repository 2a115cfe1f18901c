"""``Class.*`` with ``subclasses: true``: every override and every call of one method by another is a span."""

from __future__ import annotations

from . import report


class Base:
    """Traced with its subclasses."""

    def first(self) -> str:
        """Calls another one."""
        return self.second()

    def second(self) -> str:
        """Overridden below."""
        return "base"


class Override(Base):
    """Overrides what is called from above."""

    def second(self) -> str:
        return "override"


class Super(Base):
    """Calls what it overrides: one call, one span."""

    def first(self) -> str:
        return super().first()


def main(variant: str) -> None:
    """``base``, ``override``, ``super``; two spans each."""
    value = {"base": Base, "override": Override, "super": Super}[variant]()
    report(value=value.first(), calls=2)
