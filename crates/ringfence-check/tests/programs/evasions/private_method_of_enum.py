# refused: strict
import enum
E = enum.Enum._convert_("E", "os", lambda n: n == "system")
E.system.value("id")
