# refused: strict, basic
import builtins
builtins.exec("print(1)")
