# refused: strict, basic
import urllib.parse
urllib.parse.sys.modules
