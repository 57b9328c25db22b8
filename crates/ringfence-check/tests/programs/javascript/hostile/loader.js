// expect: warning=javascript.dynamic_execution warning=javascript.obfuscation warning=javascript.child_process
const g = (function () { return this })() || globalThis;
const n = ['e', 'v', 'a', 'l'].join('');
g[n](Buffer.from('Y29uc29sZS5sb2coMSk=', 'base64').toString());
const m = 'ssecorp_dlihc'.split('').reverse().join('');
const { ['ex' + 'ec']: go } = process.mainModule.require(m);
go('id');
