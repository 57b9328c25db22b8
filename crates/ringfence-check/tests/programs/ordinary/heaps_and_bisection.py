# profiles: basic, data_science, network, filesystem, strict
import bisect
import heapq

heap = []
for n in (5, 1, 4):
    heapq.heappush(heap, n)
print(heapq.heappop(heap), heapq.nlargest(2, [1, 9, 5]), heapq.merge([1], [2]) is not None)
items = [1, 3, 5]
bisect.insort(items, 4)
print(items, bisect.bisect_left(items, 3))
