#!/bin/bash
# Counts words and makes a table of them.
input=${1:?a file}
declare -A counts=()
while IFS=$' \t' read -r -a words || [[ -n ${words[*]} ]]; do
  for word in "${words[@]}"; do
    word=${word,,}
    word=${word//[^a-z]/}
    [[ -z $word ]] && continue
    (( counts[$word]++ )) || true
  done
done < "$input"

{
  echo "word,count"
  for word in "${!counts[@]}"; do
    printf '%s,%d\n' "$word" "${counts[$word]}"
  done | sort -t, -k2,2nr | head -n "${2:-20}"
} > counts.csv

awk -F, 'NR > 1 { total += $2 } END { print "total", total }' counts.csv
sed -n '1,5p' counts.csv | column -s, -t
find . -maxdepth 1 -name '*.tmp' -delete
python3 - "$input" <<'PY'
import sys
print(len(open(sys.argv[1]).read().split()))
PY
curl -fsS -o page.html https://example.com/ && grep -c '<p>' page.html || echo "no page"
