# profiles: basic, data_science, network, filesystem, strict
data = bytearray(b"\x00\x01\xff")
data[0] ^= 0xF0
data += bytes([1, 2])
print(data.hex(), int.from_bytes(data[:2], "big"), bin(10), 0b1010 & ~0b10 | 1 << 4, (300).to_bytes(2, "little"))
print(bytes.fromhex("6869").decode(), memoryview(data)[1], "é".encode("utf-8"), b"a".decode())
