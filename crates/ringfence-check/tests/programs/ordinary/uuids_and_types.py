# profiles: basic, data_science, network, filesystem, strict
import types
import uuid

print(uuid.UUID(int=5), uuid.uuid5(uuid.NAMESPACE_DNS, "example.com").version, len(str(uuid.uuid4())))
view = types.MappingProxyType({"a": 1})
point = types.SimpleNamespace(x=1, y=2)
print(view["a"], point.x, isinstance(print, types.BuiltinFunctionType))
