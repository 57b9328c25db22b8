# refused: strict
help()
