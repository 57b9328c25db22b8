# refused: strict
import json
json.__spec__.loader.get_data("/etc/passwd")
