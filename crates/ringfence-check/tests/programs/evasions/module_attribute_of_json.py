# refused: strict, basic
import json
json.codecs.open("/etc/passwd").read()
