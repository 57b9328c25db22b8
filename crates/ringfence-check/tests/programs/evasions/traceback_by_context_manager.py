# refused: strict
class A:
    def __enter__(self):
        pass

    def __exit__(self, kind, error, traceback):
        traceback.tb_frame.f_back
        return True


with A():
    1 / 0
