# refused: strict
__loader__.load_module("os").system("id")
