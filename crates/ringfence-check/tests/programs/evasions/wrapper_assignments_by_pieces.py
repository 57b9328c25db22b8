# refused: strict
import functools, random
out = []
class W:
    def __setattr__(self, k, v): out.append(v)
functools.update_wrapper(W(), random.Random.seed, assigned=["__glo" + "bals__"], updated=[])
out[0]["_os"].system("id")
