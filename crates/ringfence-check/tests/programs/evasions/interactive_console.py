# refused: strict, basic
import code
code.interact(local={})
