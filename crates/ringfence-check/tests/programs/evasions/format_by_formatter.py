# refused: strict
import string
string.Formatter().get_field("0.__class__", (1,), {})
