# refused: strict, basic
import importlib
importlib.import_module("os").system("id")
