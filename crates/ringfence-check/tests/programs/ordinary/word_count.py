# profiles: basic, data_science, network, filesystem, strict
from collections import Counter

text = """It was the best of times, it was the worst of times"""
words = Counter(word.strip(",").lower() for word in text.split())
for word, n in words.most_common(3):
    print(f"{word:<6}{n:>3}")
