# refused: strict
table = {"b": "__builtins__"}
lookup = lambda mapping, key: mapping[key]
lookup(globals(), table["b"])
