# profiles: basic, data_science, network, filesystem, strict
import collections
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterable, Mapping

Pair = namedtuple("Pair", ["left", "right"])
groups = defaultdict(list)
for word in ["apple", "ant", "bee"]:
    groups[word[0]].append(word)
queue = deque([1, 2, 3], maxlen=3)
queue.appendleft(0)
print(dict(groups), queue, Pair(1, 2)._replace(left=3), Counter("hello").most_common(1))
print(OrderedDict(a=1), ChainMap({"a": 1}, {"a": 2})["a"], isinstance({}, Mapping), isinstance([], Iterable))
print(collections.Counter("ab") + collections.Counter("b"))
