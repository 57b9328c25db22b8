# profiles: basic, data_science, network, filesystem, strict
import configparser
import csv

rows = list(csv.DictReader(["name,age", "ann,3", "bob,4"]))
print(sum(int(row["age"]) for row in rows))
config = configparser.ConfigParser()
config.read_string("[server]\nport = 80\n")
print(config["server"].getint("port"), config.sections())
