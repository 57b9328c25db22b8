# profiles: basic, data_science, network, filesystem, strict
import json

data = {"name": "ä", "values": [1, 2.5, None, True], "nested": {"a": []}}
text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False)
print(json.loads(text) == data, len(text))
try:
    json.loads("{")
except json.JSONDecodeError as error:
    print(error.pos)
print(json.JSONEncoder().encode([1]))
