# refused: strict, basic
import numpy
numpy.os.system("id")
