# refused: strict
("{0.__cla" + "ss__}").format(1)
