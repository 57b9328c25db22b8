#!/usr/bin/env bash
# Makes a release of a package and its notes.
set -eu
IFS=$'\n\t'

die() { echo "error: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

for tool in git npm jq; do
  have "$tool" || die "$tool is missing"
done

branch=$(git rev-parse --abbrev-ref HEAD)
[ "$branch" = main ] || die "not on main but on $branch"
[ -z "$(git status --porcelain)" ] || die "there are changes"

current=$(jq -r .version package.json)
IFS=. read -r major minor patch <<< "$current"
case "${1:-patch}" in
  major) major=$((major + 1)) minor=0 patch=0 ;;
  minor) minor=$((minor + 1)) patch=0 ;;
  patch) patch=$((patch + 1)) ;;
  *) die "unknown part: $1" ;;
esac
next="$major.$minor.$patch"

npm ci --ignore-scripts
npm test
rm -rf dist coverage ./*.tgz
npm run build -- --mode production
jq --arg v "$next" '.version = $v' package.json > package.json.new && mv package.json.new package.json
{ printf '## %s\n\n' "$next"; git log --format='- %s' "v$current.." || true; echo; cat CHANGELOG.md; } > notes.tmp
mv notes.tmp CHANGELOG.md
git commit -qam "release $next" && git tag -a "v$next" -m "$next"
echo "released $next from $current"
