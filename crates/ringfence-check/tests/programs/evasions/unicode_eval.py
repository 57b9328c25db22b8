# refused: strict
𝓮𝓿𝓪𝓵("1+1")
