# refused: strict
match (x for x in ()):
    case object(gi_frame=frame):
        print(frame)
