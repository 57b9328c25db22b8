# profiles: basic, data_science, network, filesystem, strict
import itertools
import operator

print(list(itertools.accumulate([1, 2, 3], operator.mul)), list(itertools.chain("ab", "c")))
print([(k, len(list(g))) for k, g in itertools.groupby("aabc")], list(itertools.combinations("abc", 2)))
print(list(itertools.product([0, 1], repeat=2)), list(itertools.zip_longest("ab", "c", fillvalue="-")))
people = [{"n": "b", "a": 1}, {"n": "a", "a": 2}]
print(sorted(people, key=operator.itemgetter("n"))[0]["a"])
print(max([(1, "x"), (2, "y")], key=operator.itemgetter(0)))
