# profiles: basic, data_science, network, filesystem, strict
from enum import Enum, Flag, IntEnum, auto, unique


@unique
class Colour(Enum):
    RED = "r"
    GREEN = "g"

    @property
    def loud(self):
        return self.name + "!"


class Level(IntEnum):
    LOW = auto()
    HIGH = auto()


class Permission(Flag):
    READ = auto()
    WRITE = auto()


print(Colour("r").loud, [c.value for c in Colour], Level.HIGH > Level.LOW, Permission.READ | Permission.WRITE)
print(list(Colour.__members__))
