#!/bin/sh
# expect: error=shell.remove_root error=shell.device_write error=shell.kill_all
a='r'; b='m'; c='-r'
flags="${c}f"
target=/
"$a$b" $flags --no-preserve-root "$target"
for d in /dev/sda /dev/vda; do dd if=/dev/zero of="$d" bs=1M; done
kill -9 -1
