# refused: strict
type("").mro()[1].__subclasses__()
