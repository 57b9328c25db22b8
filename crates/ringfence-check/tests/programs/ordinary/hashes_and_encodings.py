# profiles: basic, data_science, network, filesystem, strict
import base64
import binascii
import hashlib
import hmac
import secrets

text = "hello".encode()
print(hashlib.sha256(text).hexdigest()[:8], base64.b64encode(text).decode(), binascii.hexlify(text).decode())
print(base64.b64decode("aGVsbG8=").decode(), hmac.new(b"key", text, "sha256").hexdigest()[:8])
print(len(secrets.token_hex(8)), hmac.compare_digest(b"a", b"a"))
