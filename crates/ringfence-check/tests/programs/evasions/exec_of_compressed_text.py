# refused: strict, basic
import zlib, base64
exec(zlib.decompress(base64.b64decode("eJwrKMrMK9Ew1AQADzMCrA==")))
