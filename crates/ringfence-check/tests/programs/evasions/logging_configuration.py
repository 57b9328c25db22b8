# refused: strict, basic
import logging.config
logging.config.dictConfig({"version": 1, "()": "os.system"})
