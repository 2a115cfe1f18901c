"""The world of the agent: a real SQLite database of jam sales, and a table of rates."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

SHOPS = ("Leipzig", "Basel", "Utrecht", "Porto", "Graz", "Lyon")
JAMS = ("apricot", "cherry", "plum", "fig", "quince", "raspberry", "orange", "rhubarb")
MONTHS = ("January", "February", "March", "April", "May", "June")
RATES = {"EUR": 1.0, "USD": 1.25, "GBP": 0.8}
"""Somebody forgot the Swiss franc."""
DATABASE = Path("sales.db")
"""Where ``fill`` puts it."""


def fill(folder: Path, seed: int = 11) -> None:
    """Make the database."""
    global DATABASE
    DATABASE = folder / "sales.db"
    rng = random.Random(seed)
    connection = sqlite3.connect(DATABASE)
    connection.execute("CREATE TABLE sales (shop TEXT, jam TEXT, month TEXT, jars INTEGER, price INTEGER)")
    rows = [(shop, jam, month, rng.randint(4, 60), rng.choice((3, 4, 5, 6)))
            for shop in SHOPS for jam in JAMS for month in MONTHS]  # fmt: skip
    connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()


def rows_of(sql: str) -> str:
    """What the database answers, a line a row."""
    connection = sqlite3.connect(DATABASE)
    try:
        return "\n".join(" | ".join(map(str, row)) for row in connection.execute(sql))
    finally:
        connection.close()
