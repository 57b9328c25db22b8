# refused: strict
import types
types.FunctionType(types.CodeType(0), {})
