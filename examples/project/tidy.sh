#!/bin/bash
# Edits, adds, deletes, and plants a hook that git would run with the next commit.
set -e
sed -i 's/"hello, " + name/f"hello, {name}!"/' src/greet.py
printf '"""Says goodbye."""\n' > src/leave.py
rm notes.txt
mkdir -p .git/hooks
printf '#!/bin/sh\necho "I was here"\n' > .git/hooks/pre-commit
chmod +x .git/hooks/pre-commit
echo tidied
