# refused: strict, basic
from . import os
