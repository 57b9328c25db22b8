# refused: strict, basic
import json
json.decoder.scanner.sys.modules
