# refused: strict
import operator
operator.methodcaller("__reduce_ex__", 2)(object())
