# refused: strict, basic
import runpy
runpy.run_module("this")
