# refused: strict
print("{g.gi_frame.f_builtins}".format(g=(x for x in ())))
