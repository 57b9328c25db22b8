# refused: strict
object.__getattribute__((), "__class__")
