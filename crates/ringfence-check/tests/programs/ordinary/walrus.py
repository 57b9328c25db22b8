# profiles: basic, data_science, network, filesystem, strict
import re

if (found := re.search(r"(\d+)-(\d+)", "from 10-20 on")) is not None:
    low, high = map(int, found.groups())
    print(low, high)
stack = [1, 2, 3]
while (top := stack.pop() if stack else None) is not None:
    print(top)
