'use strict';
// Loaded before npm. A dependency may name a repository, an address or a file instead of a version, and code from a
// repository is built, even without scripts. Here everything comes from the registry.
const { createRequire } = require('module');
const arborist = createRequire(createRequire(process.argv[1]).resolve('@npmcli/arborist'));
const pacote = arborist('pacote');
const parse = arborist('npm-package-arg');
const { manifest, extract } = pacote;
const BY_NAME = ['version', 'range', 'tag', 'alias'];
const origins = new Set();

function refuse(spec) {
  throw new Error(`${spec} is not in the registry; only what the registry has is installed`);
}

pacote.manifest = async (spec, options) => {
  const wanted = parse(spec, options?.where);
  if (!BY_NAME.includes(wanted.type)) refuse(wanted);
  const found = await manifest(spec, options);
  for (const address of [options?.registry, found._resolved]) {
    if (address) origins.add(new URL(address).origin);
  }
  return found;
};

// A package may contain a lock file, which names the sources of its own dependencies.
pacote.extract = async (spec, target, options) => {
  const wanted = parse(spec, options?.where);
  const isKnown = wanted.type === 'remote' && origins.has(new URL(wanted.fetchSpec).origin);
  if (!isKnown && !BY_NAME.includes(wanted.type)) refuse(wanted);
  return extract(spec, target, options);
};
