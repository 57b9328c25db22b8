# profiles: basic, data_science, network, filesystem, strict
import re

pattern = re.compile(r"(?P<user>[\w.]+)@(?P<host>[\w.]+)", re.IGNORECASE)
text = "write to ann@example.com or Bob@Example.org"
print([m.group("user", "host") for m in pattern.finditer(text)])
print(re.sub(r"\s+", " ", "a  b \n c"), re.split(r"[,;]", "a,b;c"), bool(re.fullmatch(r"\d+", "12")))
pattern = re.compile("x")
print(re.escape("a.b"), pattern.pattern)
