# profiles: basic, data_science, network, filesystem, strict
class Person:
    def __init__(self, name):
        self.name = name


ann, width = Person("ann"), 10
print("{0.name:>{1}}|{who.name!r}".format(ann, width, who=ann))
print(f"{ann.name:^{width}}|{3.14159:.2f}|{1000000:,}|{'a' if width else 'b'}|{{}}|{width=}")
print("%s %05.1f %x %%" % ("a", 2.5, 255), "{:>5}{:<5}|".format("a", "b"), format(5, "b"))
print("{a}-{b}".format_map({"a": 1, "b": 2}), "-".join(map(str, range(3))))
