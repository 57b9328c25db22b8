# profiles: basic, data_science, network, filesystem, strict
from abc import ABC, abstractmethod


class Repository(ABC):
    @abstractmethod
    def get(self, key):
        ...

    @property
    @abstractmethod
    def size(self):
        ...


class InMemory(Repository):
    def __init__(self):
        self.items = {"a": 1}

    def get(self, key):
        return self.items.get(key)

    @property
    def size(self):
        return len(self.items)


try:
    Repository()
except TypeError as error:
    print("abstract", len(error.args))
print(InMemory().get("a"), InMemory().size)
