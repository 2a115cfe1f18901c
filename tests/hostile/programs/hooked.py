"""Imported by ``hooks`` through a finder of its own."""


def work(number: int) -> int:
    """What is traced."""
    return number
