# refused: strict
import functools, random
out = []
class Sink:
    def update(self, names):
        out.append(names)
class W:
    __dict__ = Sink()
    def __setattr__(self, k, v): pass
functools.update_wrapper(W(), random)
out[0]["_os"].system("id")
