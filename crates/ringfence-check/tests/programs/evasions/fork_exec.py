# refused: strict, basic
import _posixsubprocess
_posixsubprocess.fork_exec
