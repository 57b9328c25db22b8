# refused: strict
type(lambda: 0)((lambda: 1).__code__, {})()
