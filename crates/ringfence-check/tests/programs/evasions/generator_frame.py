# refused: strict
g = (g.gi_frame.f_back.f_globals for _ in [1])
print([*g])
