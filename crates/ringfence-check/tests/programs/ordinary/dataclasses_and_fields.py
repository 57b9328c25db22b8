# profiles: basic, data_science, network, filesystem, strict
from dataclasses import asdict, astuple, dataclass, field, replace


@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False)
    tags: list = field(default_factory=list, compare=False)

    def __post_init__(self):
        self.name = self.name.title()


@dataclass(frozen=True)
class Point:
    x: int = 0
    y: int = 0

    def moved(self, dx):
        return replace(self, x=self.x + dx)


class Unit:
    pass


item = Item(2.5, "apple")
print(asdict(item), astuple(Point(1, 2)), Point(1).moved(3), sorted([Item(3, "b"), item])[0].name)
print(list(Item.__dataclass_fields__))
