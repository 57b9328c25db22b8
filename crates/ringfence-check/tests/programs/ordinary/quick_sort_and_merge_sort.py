# profiles: basic, data_science, network, filesystem, strict
def quick_sort(items):
    if len(items) < 2:
        return items
    pivot, *rest = items
    return quick_sort([x for x in rest if x < pivot]) + [pivot] + quick_sort([x for x in rest if x >= pivot])


def merge(a, b):
    result = []
    while a and b:
        result.append((a if a[0] <= b[0] else b).pop(0))
    return result + a + b


def merge_sort(items):
    if len(items) < 2:
        return list(items)
    middle = len(items) // 2
    return merge(merge_sort(items[:middle]), merge_sort(items[middle:]))


print(quick_sort([3, 1, 2]), merge_sort([9, 8, 7, 1]))
