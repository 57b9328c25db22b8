set -eu
name=${1:-world}
count=0

greet() {
  local who=$1
  if [ -n "$who" ]; then
    printf 'hello %s\n' "$who"
  else
    echo 'nobody' >&2
    return 1
  fi
}

for word in a b "$name"; do
  greet "$word" | tr a-z A-Z
  count=$((count + 1))
done
echo "$count"

