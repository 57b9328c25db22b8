# refused: strict, basic
import inspect
inspect.currentframe().f_back
