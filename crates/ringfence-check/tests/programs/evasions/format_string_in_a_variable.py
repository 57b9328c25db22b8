# refused: strict
template = "{x.__class__.__mro__}"
print(template.format(x=1))
