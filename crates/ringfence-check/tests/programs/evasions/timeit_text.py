# refused: strict, basic
import timeit
timeit.timeit("print(1)", number=1)
