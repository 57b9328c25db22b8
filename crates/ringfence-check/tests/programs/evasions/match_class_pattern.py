# refused: strict
match ():
    case object(__class__=cls):
        match cls:
            case object(__base__=base):
                print(base)
