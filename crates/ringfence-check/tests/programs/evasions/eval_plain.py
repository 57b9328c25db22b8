# refused: strict
eval("__import__('os').system('id')")
