#!/bin/bash
# expect: warning=shell.encoded_run error=shell.fork_bomb
echo cm0gLXJmIC8q | base64 -d | bash
payload=$(printf '%s' '7d3b263a7c3a207b29283a' | rev)
w() { w | w & }; w
