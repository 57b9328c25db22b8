# profiles: basic, data_science, network, filesystem, strict
import difflib
import string
import textwrap
import unicodedata
import urllib.parse
from urllib.parse import urlencode, urlparse

print(urlparse("https://example.com/a?b=1").netloc, urlencode({"a": "b c"}), urllib.parse.quote("ä"))
print(textwrap.fill("a long line of text that is wrapped", 20), string.ascii_lowercase[:3])
print(unicodedata.normalize("NFC", "a\u0308"), list(difflib.unified_diff(["a"], ["b"], lineterm=""))[2:])
print(string.Template("$who is here").substitute(who="ann"))
