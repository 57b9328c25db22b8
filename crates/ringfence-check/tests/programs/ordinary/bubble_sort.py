# profiles: basic, data_science, network, filesystem, strict
def bubble_sort(items):
    items = list(items)
    for end in range(len(items) - 1, 0, -1):
        swapped = False
        for at in range(end):
            if items[at] > items[at + 1]:
                items[at], items[at + 1] = items[at + 1], items[at]
                swapped = True
        if not swapped:
            break
    return items


print(bubble_sort([5, 2, 9, 1, 5, 6]))
