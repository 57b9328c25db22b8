# refused: strict, basic
import multiprocessing
multiprocessing.Process(target=print).start()
