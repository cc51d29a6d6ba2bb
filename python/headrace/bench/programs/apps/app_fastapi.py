"""FastAPI validates a posted object and answers with it."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Item(BaseModel):
    """What is posted."""

    name: str
    price: float
    tags: list[str] = []


@app.get("/hello")
async def hello() -> dict[str, str]:
    """Hello."""
    return {"message": "hello"}


@app.post("/items/{item_id}")
async def post_item(item_id: int, item: Item, q: str | None = None) -> dict[str, Any]:
    """The item with its number."""
    return {"id": item_id, "q": q, **item.model_dump()}
