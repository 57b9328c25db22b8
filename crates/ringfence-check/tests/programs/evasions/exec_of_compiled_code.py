# refused: strict
exec(compile("print(1)", "x", "exec"))
