# profiles: basic, data_science, network, filesystem, strict
import heapq
from collections import defaultdict


def shortest(graph, start):
    distance = defaultdict(lambda: float("inf"), {start: 0})
    heap = [(0, start)]
    while heap:
        far, node = heapq.heappop(heap)
        if far > distance[node]:
            continue
        for neighbour, weight in graph.get(node, {}).items():
            if (new := far + weight) < distance[neighbour]:
                distance[neighbour] = new
                heapq.heappush(heap, (new, neighbour))
    return dict(distance)


print(shortest({"a": {"b": 1, "c": 4}, "b": {"c": 2}}, "a"))
