# refused: strict
from typing import ForwardRef
ForwardRef("print(1)")._evaluate({}, {}, recursive_guard=frozenset())
