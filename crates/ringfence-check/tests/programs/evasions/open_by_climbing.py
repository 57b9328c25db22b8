# refused: strict
open("../../../../etc/shadow").read()
