# refused: strict
breakpoint()
