# refused: strict, basic
import warnings
warnings.catch_warnings()._module.sys.modules
