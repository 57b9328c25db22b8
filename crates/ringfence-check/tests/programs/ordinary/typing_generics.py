# profiles: basic, data_science, network, filesystem, strict
from __future__ import annotations

from typing import Any, Callable, Dict, Generic, Iterable, List, NamedTuple, Optional, Protocol, TypedDict, TypeVar, Union

T = TypeVar("T")
K = TypeVar("K", bound="Comparable")


class Comparable(Protocol):
    def __lt__(self, other: Any) -> bool: ...


class Stack(Generic[T]):
    def __init__(self) -> None:
        self._items: List[T] = []

    def push(self, item: T) -> Stack[T]:
        self._items.append(item)
        return self

    def pop(self) -> Optional[T]:
        return self._items.pop() if self._items else None


class Point(NamedTuple):
    x: int
    y: int = 0


class Movie(TypedDict, total=False):
    title: str


def apply(f: Callable[[T], K], items: Iterable[T]) -> Dict[str, Union[K, None]]:
    return {str(item): f(item) for item in items}


movie: Movie = {"title": "x"}
print(Stack[int]().push(1).push(2).pop(), Point(1), movie, apply(len, ["a", "bb"]))
