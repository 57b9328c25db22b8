# refused: strict
ªeval = 1
print(ｇｌｏｂａｌｓ())
