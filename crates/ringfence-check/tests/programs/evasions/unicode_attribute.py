# refused: strict
().__𝒸𝓁𝒶𝓈𝓈__.__𝒷𝒶𝓈ℯ__
