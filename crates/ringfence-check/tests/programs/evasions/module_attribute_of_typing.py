# refused: strict, basic
import typing
typing.sys.modules
