# profiles: basic, data_science, network, filesystem, strict
text = "The quick brown fox"
print(text.split()[::-1], text.lower().count("o"), text.find("quick"), text.replace(" ", "_"), text[4:9])
print("madam" == "madam"[::-1], "".join(sorted("hello")), text.title(), "a,b".partition(","), text.startswith("The"))
vowels = sum(letter in "aeiou" for letter in text)
caesar = "".join(chr((ord(c) - 97 + 3) % 26 + 97) if c.islower() else c for c in text)
print(vowels, caesar, text.translate(str.maketrans("abc", "xyz")), repr("a\tb"), r"\n", "a" "b")
