# refused: strict, basic
import posix
posix.system("id")
