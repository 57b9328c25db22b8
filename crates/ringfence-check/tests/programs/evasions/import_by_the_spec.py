# refused: strict
__spec__.loader.load_module("os")
