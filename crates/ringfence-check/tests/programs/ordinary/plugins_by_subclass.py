# profiles: basic, data_science, network, filesystem, strict
class Plugin:
    registry = {}

    def __init_subclass__(cls, /, name=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Plugin.registry[name or cls.__name__.lower()] = cls


class Upper(Plugin):
    def run(self, text):
        return text.upper()


class Reverse(Plugin, name="back"):
    def run(self, text):
        return text[::-1]


print({name: plugin().run("abc") for name, plugin in Plugin.registry.items()})
