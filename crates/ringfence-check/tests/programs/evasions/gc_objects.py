# refused: strict, basic
import gc
[o for o in gc.get_objects() if type(o).__name__ == "module"]
