# refused: strict, basic
import marshal
marshal.loads(b"N")
