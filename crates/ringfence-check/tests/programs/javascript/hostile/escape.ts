// expect: warning=javascript.dynamic_execution warning=javascript.native warning=javascript.dynamic_require warning=javascript.prototype_pollution
const make: any = (async () => {}).constructor;
const run = make('return process' as string);
const inner = ([] as any)['constructor']['constructor']('return this')();
(process as any)['binding']('spawn_sync');
const load = (name: string) => require(name);
(Object.prototype as any).polluted = true;
