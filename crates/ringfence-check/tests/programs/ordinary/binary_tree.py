# profiles: basic, data_science, network, filesystem, strict
class Node:
    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right = value, left, right

    def insert(self, value):
        side = "left" if value < self.value else "right"
        child = getattr(self, "left") if side == "left" else getattr(self, "right")
        if child is None:
            setattr(self, "left", Node(value)) if side == "left" else setattr(self, "right", Node(value))
        else:
            child.insert(value)

    def __iter__(self):
        if self.left:
            yield from self.left
        yield self.value
        if self.right:
            yield from self.right


root = Node(5)
for n in (3, 8, 1, 4, 9):
    root.insert(n)
print(list(root), hasattr(root, "value"))
