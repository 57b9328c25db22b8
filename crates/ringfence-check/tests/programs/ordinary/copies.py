# profiles: basic, data_science, network, filesystem, strict
import copy

a = {"x": [1, 2]}
b, c = copy.copy(a), copy.deepcopy(a)
a["x"].append(3)
print(b, c)


class Tree:
    def __init__(self, children):
        self.children = children

    def __copy__(self):
        return Tree(list(self.children))

    def __deepcopy__(self, memo):
        return Tree(copy.deepcopy(self.children, memo))


print(copy.deepcopy(Tree([[1]])).children)
