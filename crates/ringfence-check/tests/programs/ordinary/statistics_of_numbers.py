# profiles: basic, data_science, network, filesystem, strict
import statistics

data = [2, 4, 4, 4, 5, 5, 7, 9]
print(statistics.mean(data), statistics.median(data), statistics.pstdev(data), statistics.mode(data))
