# profiles: basic, data_science, network, filesystem, strict
class Shape:
    def __init__(self, name):
        self.name = name

    def area(self):
        raise NotImplementedError

    def __str__(self):
        return f"{self.__class__.__name__} {self.name}: {self.area():.2f}"


class Circle(Shape):
    def __init__(self, radius):
        super().__init__("round")
        self.radius = radius

    def area(self):
        return 3.14159 * self.radius ** 2


class Square(Shape):
    def __init__(self, side):
        super(Square, self).__init__("square")
        self.side = side

    def area(self):
        return self.side ** 2


for shape in (Circle(1), Square(2)):
    print(shape)
