# refused: strict
def f():
    global x, frame
    frame = x.gi_frame.f_back.f_back
    yield 1


x = f()
x.send(None)
print(frame.f_globals)
