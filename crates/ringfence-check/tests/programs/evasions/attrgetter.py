# refused: strict
import operator
operator.attrgetter("__class__.__base__")(())
