# profiles: basic, data_science, network, filesystem, strict
class LinkedList:
    class Node:
        def __init__(self, value, next=None):
            self.value = value
            self.next = next

    def __init__(self, items=()):
        self.head = None
        for item in reversed(list(items)):
            self.head = self.Node(item, self.head)

    def __iter__(self):
        node = self.head
        while node is not None:
            yield node.value
            node = node.next

    def reverse(self):
        before, node = None, self.head
        while node:
            node.next, before, node = before, node, node.next
        self.head = before


numbers = LinkedList([1, 2, 3])
numbers.reverse()
print(*numbers)
