# refused: strict, basic
import pickle
pickle.loads(b"cos\nsystem\n(S'id'\ntR.")
