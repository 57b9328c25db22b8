# profiles: basic, data_science, network, filesystem, strict
class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.values.get(self.name)

    def __set__(self, instance, value):
        if value <= 0:
            raise ValueError("must be positive")
        instance.values[self.name] = value


class Order:
    amount = Positive()

    def __init__(self, amount):
        self.values = {}
        self.amount = amount


print(Order(3).amount)
try:
    Order(-1)
except ValueError as error:
    print(error)
