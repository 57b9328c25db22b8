# refused: strict
"{0.__class__.__init__.__globals__}".format(1)
