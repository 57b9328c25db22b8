# refused: strict, basic
ｉｍｐｏｒｔ = 1
__𝒾𝓂𝓅ℴ𝓇𝓉__("os").𝘴𝘺𝘴𝘵𝘦𝘮("id")
