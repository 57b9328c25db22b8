import compileall, os, py_compile, runpy, shutil, sys
target, inside = sys.argv[1], sys.argv[2]
sys.argv[0:3] = ['pip']
from pip._internal.distributions.sdist import SourceDistribution
from pip._internal.exceptions import InstallationError
from pip._internal.req.req_install import InstallRequirement
# `--only-binary` applies to packages from an index. A dependency may name an address instead, perhaps of a source.
def refuse_sources(*_, **__):
    raise InstallationError('a source would have to be built, which is not done here')
def by_name(self, *words, _own=InstallRequirement.__init__, **options):
    _own(self, *words, **options)
    if self.link is not None:
        raise InstallationError(f'{self} is at an address of its own; only what the index has is installed')
if not hasattr(SourceDistribution, 'prepare_distribution_metadata'):
    sys.exit('this pip cannot be kept from building sources')
SourceDistribution.prepare_distribution_metadata = refuse_sources
InstallRequirement.__init__ = by_name
try:
    runpy.run_module('pip', run_name='__main__', alter_sys=True)
except SystemExit as leave:
    if leave.code not in (None, 0):
        raise
# Compiled once here: a layer is read-only where it is used, and its sources do not change, so none is checked.
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
places = {'stripdir': target, 'prependdir': inside} if sys.version_info >= (3, 9) else {'ddir': inside}
compileall.compile_dir(target, quiet=2, maxlevels=64, invalidation_mode=unchecked, **places)
if os.path.isdir(target + '/bin'):
    shutil.move(target + '/bin', os.path.dirname(target) + '/bin')
