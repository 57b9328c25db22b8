# refused: strict
exit.__init__.__globals__["sys"].modules["os"].system("id")
