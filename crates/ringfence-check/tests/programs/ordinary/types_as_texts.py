# profiles: basic, data_science, network, filesystem, strict
from __future__ import annotations

import functools
import typing
from typing import Annotated, Literal, NamedTuple, Optional, TypedDict, TypeVar, Union

T = TypeVar("T", bound="Node")


class Node:
    def __init__(self, value: "int", left: Optional["Node"] = None, right: "Node | None" = None):
        self.value, self.left, self.right = value, left, right

    def add(self, value: int) -> "Node":
        side: Literal["left", "right (or equal)"] = "left" if value < self.value else "right (or equal)"
        name = side.split()[0]
        below = getattr(self, "left") if name == "left" else self.right
        if below is not None:
            return below.add(value)
        node = Node(value)
        if name == "left":
            self.left = node
        else:
            self.right = node
        return node


class Row(NamedTuple):
    name: "str"
    size: Annotated[int, "bytes (at most 10)"] = 0


class Movie(TypedDict, total=False):
    title: "str"
    cast: "list[dict[str, tuple[int, ...]]]"


@functools.singledispatch
def told(value: object, about: "what it is (a text)" = "") -> str:
    return "something"


@told.register
def _(value: int, about: str = "") -> str:
    return f"number {value}"


@told.register(list)
def _(value, about=""):
    return f"{len(value)} things"


def first(items: typing.Sequence["Node"], default: "Union[Node, None]" = None) -> typing.Union["Node", None]:
    return items[0] if items else default


root = Node(3)
root.add(1), root.add(4)
movie: Movie = {"title": "x"}
print(root.left.value, root.right.value, Row("a"), movie, told(1), told([1]), told(""), first([root]).value)
