"""A small agent whose tools are in a dict."""

from __future__ import annotations

from collections.abc import Callable

WEATHER = {"Aachen": 17, "Celle": 16}
PEOPLE = {"Aachen": 252_769, "Celle": 69_706}
TOOLS: dict[str, Callable[[str], int]] = {}


def tool(function: Callable[[str], int]) -> Callable[[str], int]:
    """Register ``function`` under its name."""
    TOOLS[function.__name__] = function
    return function


@tool
def temperature(city: str) -> int:
    """Degrees Celsius."""
    return WEATHER[city]


@tool
def population(city: str) -> int:
    """Inhabitants."""
    return PEOPLE[city]


def answer(question: str) -> str:
    """The answer to a question about cities: what a model decides in a real agent, words decide here."""
    name, unit = ("temperature", "degrees") if "warm" in question else ("population", "people")
    cities = [city for city in WEATHER if city in question]
    return ", ".join(f"{city}: {TOOLS[name](city)} {unit}" for city in cities)
