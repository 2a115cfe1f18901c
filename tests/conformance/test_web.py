"""FastAPI and pydantic look closely at the functions they are given, and see no difference."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import httpx
import pytest

from .conftest import Host

APP = """
from __future__ import annotations
from typing import Annotated, AsyncIterator, Iterator
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

log = []

class Item(BaseModel):
    name: str
    price: float = 1.0
    def total(self, number: int = 2) -> float:
        return self.price * number

def limit(limit: int = 10) -> int:
    return limit

async def token(token: str = "none") -> str:
    return token

def session() -> Iterator[str]:
    log.append("session opened")
    try:
        yield "session"
    except HTTPException as error:
        log.append(f"session saw {error.status_code}")
        raise
    finally:
        log.append("session closed")

async def connection() -> AsyncIterator[str]:
    log.append("connection opened")
    yield "connection"
    log.append("connection closed")

class Checker:
    def __init__(self, low: int) -> None:
        self.low = low
    def __call__(self, number: int = 5) -> bool:
        return number > self.low

checker = Checker(3)

def read(number: int, limit: Annotated[int, Depends(limit)], token: Annotated[str, Depends(token)],
         session: Annotated[str, Depends(session)], connection: Annotated[str, Depends(connection)],
         checked: Annotated[bool, Depends(checker)]) -> dict:
    return {"number": number, "limit": limit, "token": token, "with": [session, connection, checked]}

async def create(item: Item) -> Item:
    return Item(name=item.name, price=item.total(3))

async def fails(session: Annotated[str, Depends(session)]) -> None:
    raise HTTPException(418, "teapot")

async def numbers() -> AsyncIterator[bytes]:
    for number in range(3):
        yield str(number).encode()

def stream() -> StreamingResponse:
    return StreamingResponse(numbers())

def make() -> FastAPI:
    app = FastAPI()
    app.get("/read/{number}")(read)
    app.post("/items")(create)
    app.get("/fails")(fails)
    app.get("/stream")(stream)
    return app
"""


def talk(module: ModuleType) -> list[Any]:
    """What a client sees of the application, its schema included."""

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app=module.make())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answers = [
                await client.get("/read/3?limit=7&token=t"),
                await client.get("/read/three"),
                await client.post("/items", json={"name": "pen", "price": 2}),
                await client.post("/items", json={"price": 2}),
                await client.get("/fails"),
                await client.get("/stream"),
                await client.get("/openapi.json"),
            ]
        return [(answer.status_code, answer.text) for answer in answers]

    return [asyncio.run(ask()), list(module.log)]


def test_a_fastapi_application(host: Host) -> None:
    bare = host.load("bare_app", APP)
    host.watch("same_app.**", "same_app.checker")
    traced = host.load("same_app", APP)
    seen = talk(traced)
    assert seen == talk(bare) and seen[0][0][0] == 200 and seen[0][4][0] == 418
    called = host.opened()
    assert {"read", "limit", "token", "session", "connection", "Checker.__call__", "create", "numbers"} <= set(called)
    assert called.count("session") == 3 and "Item.total" in called


def test_pydantic_models(host: Host) -> None:
    source = """
from __future__ import annotations
from typing import Any, Generic, TypeVar
import pydantic
from pydantic.dataclasses import dataclass
T = TypeVar("T")
class Point(pydantic.BaseModel):
    x: int
    y: int = 2
    @pydantic.field_validator("x")
    @classmethod
    def positive(cls, value: int) -> int:
        if value <= 0: raise ValueError("must be positive")
        return value
    @pydantic.model_validator(mode="after")
    def ordered(self) -> Point:
        if self.x > self.y: raise ValueError("x > y")
        return self
    @pydantic.computed_field
    @property
    def area(self) -> int: return self.x * self.y
    @pydantic.field_serializer("y")
    def shown(self, value: int) -> str: return str(value)
    def moved(self, by: int) -> Point: return Point(x=self.x + by, y=self.y + by)
class Deep(Point):
    def moved(self, by: int) -> Point: return super().moved(by + 1)
class Box(pydantic.BaseModel, Generic[T]):
    item: T
    def get(self) -> T: return self.item
@dataclass
class Data:
    x: int
    def double(self) -> int: return self.x * 2
@pydantic.validate_call
def checked(x: int, *, y: int = 2) -> int: return x + y
def local() -> Any:
    class Inner(pydantic.BaseModel):
        x: int
    class Outer(pydantic.BaseModel):
        inner: Inner
    return Outer(inner={"x": "3"}).inner.x
def everything() -> list[Any]:
    errors = []
    for values in ({"x": 0}, {"x": 5}, {"x": "a"}):
        try: Point(**values)
        except pydantic.ValidationError as error: errors.append([entry["msg"] for entry in error.errors()])
    return [errors, Point(x=1).model_dump(), Point.model_json_schema(), Deep(x=1).moved(1).x, Box[int](item="3").get(),
            Data(x="4").double(), checked("1"), local(), Point(x=1).model_copy(update={"y": 3}).area]
"""
    bare = host.load("bare_models", source)
    host.watch("same_models.**")
    traced = host.load("same_models", source)
    assert traced.everything() == bare.everything()
    assert {"everything", "Deep.moved", "Point.moved", "Box.get", "Data.double", "local"} <= set(host.opened())


def test_pydantic_validate_call_of_a_wrapper(host: Host) -> None:
    import pydantic

    host.watch("plain.f")
    module = host.load("plain", "def f(x: int, *, y: 'int' = 2) -> int: return x + y\n")
    checked = pydantic.validate_call(module.f)
    assert checked("1", y="3") == 4
    with pytest.raises(pydantic.ValidationError):
        checked("a")
