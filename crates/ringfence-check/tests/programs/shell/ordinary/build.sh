#!/usr/bin/env bash
# Builds a release and packs it.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
version="${VERSION:-$(git -C "$root" describe --tags --always)}"
out="$root/dist"
jobs="${JOBS:-$(nproc)}"

usage() {
  cat <<USAGE
usage: ${0##*/} [--clean] [--target TARGET]

  --clean          remove the output first
  --target TARGET  one of: debug, release
USAGE
}

log() { printf '[%s] %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

target=release
while [[ $# -gt 0 ]]; do
  case "$1" in
    --clean) rm -rf "$out" ;;
    --target=*) target="${1#*=}" ;;
    --target) target="$2"; shift ;;
    -h | --help) usage; exit 0 ;;
    *) log "unknown: $1"; usage; exit 2 ;;
  esac
  shift
done

tmp="$(mktemp -d)"
trap 'rm -rf "$tmp"' EXIT

mkdir -p "$out"
for file in "$root"/src/*.c; do
  [[ -e "$file" ]] || continue
  name="$(basename "$file" .c)"
  log "compiling $name"
  cc -O2 -c "$file" -o "$tmp/$name.o" &
  while (( $(jobs -r | wc -l) >= jobs )); do wait -n; done
done
wait

if [[ "$target" == release ]]; then
  strip "$tmp"/*.o || true
fi
tar -czf "$out/app-$version.tar.gz" -C "$tmp" .
sha256sum "$out"/*.tar.gz | tee "$out/SHA256SUMS"
log "done: $(du -h "$out" | tail -n 1 | cut -f 1)"
