# profiles: basic, data_science, network, filesystem, strict
class Frozen:
    __slots__ = ("value",)

    def __init__(self, value):
        object.__setattr__(self, "value", value)

    def __setattr__(self, name, value):
        raise AttributeError(f"{name} is frozen")


f = Frozen(3)
try:
    f.value = 4
except AttributeError as error:
    print(error, f.value)
