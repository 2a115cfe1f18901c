"""A resources server of NeMo-Gym, as its users write one: a tool that cannot add 5, and a verifier."""

from fastapi import FastAPI
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from pydantic import BaseModel


class Numbers(BaseModel):
    a: int
    b: int


class Sums(SimpleResourcesServer):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def add(self, body: Numbers) -> dict[str, int]:
        if body.b == 5:
            raise ValueError("cannot add 5")
        return {"sum": body.a + body.b}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(body.response.output_text == "It is 4."))


if __name__ == "__main__":
    Sums.run_webserver()
