# refused: strict
from json.tool import Path
print(Path("/etc/hostname").read_text()[:40])
