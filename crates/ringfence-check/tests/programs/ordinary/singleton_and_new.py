# profiles: basic, data_science, network, filesystem, strict
class Settings:
    instance = None

    def __new__(cls):
        if cls.instance is None:
            cls.instance = super().__new__(cls)
            cls.instance.values = {}
        return cls.instance


class Meta(type):
    def __new__(mcs, name, bases, namespace):
        namespace["tag"] = name.lower()
        return super().__new__(mcs, name, bases, namespace)


class Tagged(metaclass=Meta):
    pass


Settings().values["a"] = 1
print(Settings().values, Settings() is Settings(), Tagged.tag)
