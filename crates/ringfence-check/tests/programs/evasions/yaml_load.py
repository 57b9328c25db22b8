# refused: strict, basic
import yaml
yaml.load("!!python/object/apply:os.system [id]")
