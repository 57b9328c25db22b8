# refused: strict
[x := eval, x("1+1")]
