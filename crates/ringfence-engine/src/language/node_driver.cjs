((serve) => {
  'use strict';
  const fs = require('fs'), path = require('path'), vm = require('vm'), util = require('util');
  const { createRequire } = require('module'), { pathToFileURL } = require('url');
  // `leave` exits normally, and in a fork by our own exit, without node's handling of threads that a fork lacks.
  let leave = process.reallyExit, end = () => {}, has_preloaded = false, tried = '';
  // A template continues in each child that it forks, one for each requested sandbox. An addon, the file at descriptor
  // 6, forks and raises the walls of a child. Returns nothing if there is nothing to run.
  const forked = (read) => {
    const addon = { exports: {} };
    process.dlopen(addon, '/proc/self/fd/6');
    const { prepare, tryRun, found, serve: fork, confine, end: end_with, exit } = addon.exports;
    let refused = ['', 'its C library is not GNU\'s', 'it has no OpenSSL', 'it has no threads of V8'][prepare()];
    const left = has_preloaded ? process.getActiveResourcesInfo().find((kind) => /Timeout|Immediate/.test(kind)) : undefined;
    if (left) refused = `a module of warm.preload_node leaves something to be done (${left})`;
    if (!refused) {
      const ended = tryRun();
      if (ended < 0) return rehearse(end_with);
      if (ended !== REHEARSED << 8) refused = `a fork of it did not end as it should (${ended})`;
    }
    const filters = fs.readFileSync(5), born = Buffer.alloc(8), flags = require('v8').setFlagsFromString;
    const tell = () => fs.writeSync(4, JSON.stringify({ wanted: [], loaded: '', refused }));
    if (refused) return tell(), fs.readSync(4, born), undefined; // until it is ended
    process.execArgv.splice(0, 2); // children of forks may have threads
    [leave, end, process.reallyExit] = [exit, end_with, exit];
    const fatal = process._fatalException;
    process._fatalException = function (...error) {
      let status = 7; // node's status if a handler fails
      try {
        const handled = fatal.apply(this, error);
        status = 0;
        return handled;
      } finally {
        if (status) end(status);
      }
    };
    const is_trial = tryRun() < 0; // finds the memory that forks write to
    if (is_trial) leave = found;
    else tell(), fork(4, filters, born);
    Object.defineProperty(process, 'pid', { value: born.readUInt32LE(0), enumerable: true });
    process.chdir('.'); // node caches the working directory
    // Reseeds V8: the program's random numbers do not follow from the template's.
    flags(`--random-seed=${born.readUInt32LE(4) || 1}`);
    Math.random();
    flags('--random-seed=0');
    if (has_preloaded) {
      // Uses up node's cached random values, if one of the modules has drawn from them.
      const { randomUUID, randomInt } = require('crypto');
      for (let turn = 0; turn < 128; turn++) randomUUID();
      for (let turn = 0; turn < 1024; turn++) randomInt(2);
    }
    if (is_trial) {
      process.removeAllListeners('exit').removeAllListeners('beforeExit'); // they might undo setup that forks need
      tried = TRIED;
      return { env: { ...process.env }, script: '/dev/null', args: [] };
    }
    const word = read();
    confine(word.workspace || '');
    return word;
  };
  const REHEARSED = 42, TRIED = 'const text = [1, 2].map(String).join(); console.log(text); ({ text })';
  // A trial fork, which shows whether forks work, and ends as node does.
  const rehearse = (end_with) => {
    const done = [
      new Promise((then) => setTimeout(then, 1)),
      fs.promises.readFile('/proc/self/stat'),
      new Promise((then, fail) => require('zlib').gzip('x', (error) => (error ? fail(error) : then()))),
    ];
    require('v8').setFlagsFromString('--expose-gc');
    vm.runInNewContext('gc')();
    Promise.all(done).catch(() => process.abort());
    process.removeAllListeners('exit').removeAllListeners('beforeExit'); // they might undo setup that forks need
    process.on('exit', () => (end_with(REHEARSED), leave.call(process, 1)));
  };
  if (process.argv.length < 2) {
    // Started ahead: the program is still to come. Random numbers of the modules must not repeat in forks.
    const { random } = Math;
    Math.random = () => require('crypto').randomBytes(6).readUIntBE(0, 6) / 2 ** 48;
    for (const name of process.env.RINGFENCE_PRELOAD.split(',').filter(Boolean)) {
      try {
        require(name);
        has_preloaded = true;
      } catch {}
    }
    Math.random = random;
    // Does the work of a run once: most of it is loaded and compiled at its first use. Not the standard streams
    // themselves, which are the program's to open: once they are open, their pipes do not block.
    const nowhere = new (require('stream').Writable)({ write: (chunk, encoding, done) => done() });
    new (require('console').Console)(nowhere).log('%s', { a: [1, 'b'] });
    new (require('net').Socket)().destroy();
    new vm.Script('0', { importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER }).runInThisContext();
    createRequire('/code/x');
    const read = () => {
      const text = fs.readFileSync(4, 'utf8');
      fs.closeSync(4);
      return JSON.parse(text);
    };
    const is_template = !fs.fstatSync(4).isFIFO();
    if (!is_template) fs.closeSync(5);
    const word = is_template ? forked(read) : read();
    if (!word) return;
    for (const name of Object.keys(process.env)) delete process.env[name];
    Object.assign(process.env, word.env);
    if (word.module) process.env.RINGFENCE_MODULE = word.module;
    if (word.source_maps) process.setSourceMapsEnabled(true);
    if (word.session) return serve();
    process.argv.push(word.script, ...word.args);
  }
  const script = process.argv[1], module_file = process.env.RINGFENCE_MODULE;
  delete process.env.RINGFENCE_MODULE;
  // The program appears to be in the workspace, so that relative names refer to files there.
  const apparent = path.join(process.cwd(), path.basename(script));
  process.argv[1] = apparent;
  const RESULT = Symbol.for('ringfence.result'), NAMES = Symbol.for('ringfence.names'), IMPORT = Symbol.for('ringfence.import'), META = Symbol.for('ringfence.meta');
  // Hides a warning about our own resolution of a script's import().
  const warn = process.emitWarning;
  process.emitWarning = (warning, ...rest) => (/USE_MAIN_CONTEXT/.test(String(warning)) ? undefined : warn.call(process, warning, ...rest));
  const given = new Set(Object.getOwnPropertyNames(globalThis));
  let value, failed = false, told = false;

  const tell = (tag, text, limit) => {
    let data = Buffer.from(String(text)).subarray(0, limit + 1); // one byte more than the limit marks a cut
    const head = Buffer.alloc(5);
    head.write(tag);
    head.writeUInt32BE(data.length, 1);
    data = Buffer.concat([head, data]);
    try {
      while (data.length) data = data.subarray(fs.writeSync(3, data));
    } catch {}
  };
  // Only `tell` cuts a text: redaction has to know where a text was cut.
  const inspect = (thing, how) => util.inspect(thing, { ...how, maxStringLength: Infinity });
  const named = (text) => (module_file ? text.split(pathToFileURL(module_file).href).join(apparent).split(module_file).join(apparent) : text);
  const explain = (error) => {
    failed = true;
    const known = error instanceof Error || (error && typeof error === 'object' && 'stack' in error);
    const own = (line) => !/^\s+at .*(node:|\[eval\])/.test(line);
    const stack = named(known ? String(error.stack) : `Uncaught ${inspect(error)}`).split('\n').filter(own).join('\n');
    const place = stack.split('\n').map((line) => line.indexOf(apparent + ':') >= 0 && line.slice(line.indexOf(apparent + ':') + apparent.length + 1).match(/^\d+/)).find(Boolean);
    tell('E', known ? (error.name || 'Error') : typeof error, 1024);
    tell('M', known ? error.message : inspect(error), 65536);
    tell('T', stack + '\n', 262144);
    if (place) tell('L', place[0], 16);
  };
  const declared = (code) => {
    const seen = new Set((module_file ? [] : code.match(/[A-Za-z_$][\w$]*/g) || []).slice(0, 20000));
    const lexical = (name) => {
      try {
        return !given.has(name) && vm.runInThisContext(`typeof ${name}`) !== 'undefined';
      } catch {
        return false;
      }
    };
    return globalThis[NAMES] || [...seen].filter(lexical);
  };
  const describe = () => {
    if (value === undefined) return;
    let text;
    try {
      text = inspect(value, { depth: 6 });
    } catch {
      text = '<unrepresentable>';
    }
    tell('P', text, 65536);
    try {
      const json = JSON.stringify(value);
      if (json !== undefined && json.length <= 1 << 20 && util.isDeepStrictEqual(JSON.parse(json), value)) tell('R', json, 1 << 20);
    } catch {}
  };
  process.on('uncaughtExceptionMonitor', (error) => {
    if (process.listenerCount('uncaughtException') === 0) explain(error);
  });
  let code = '';
  process.on('exit', () => {
    if (failed || told) return;
    told = true;
    if (module_file) value = globalThis[RESULT];
    if (value && typeof value.then === 'function') value = settled.get(value);
    describe();
    for (const name of declared(code).slice(0, 1000)) tell('V', name, 256);
  });
  // Leaves after the last report without node's teardown, which takes two milliseconds. An uncaught error is only
  // reported after this event.
  const emit = process.emit;
  process.emit = function (event, ...rest) {
    if (event !== 'exit') return emit.call(this, event, ...rest);
    let status;
    try {
      const heard = emit.call(this, event, ...rest);
      status = process.exitCode ?? rest[0] ?? 0;
      if (!failed) leave.call(process, status);
      return heard;
    } finally {
      end(status ?? (process.exitCode || 1));
    }
  };
  // A promise as a result is replaced by its final value.
  const settled = new Map();
  const follow = (result) => {
    if (result && typeof result.then === 'function') result.then((final) => settled.set(result, final));
  };

  const require_here = createRequire(apparent);
  Object.assign(globalThis, { require: require_here, __filename: apparent, __dirname: path.dirname(apparent) });
  const local = (name) => import(/^\.{0,2}\//.test(name) ? pathToFileURL(path.resolve(path.dirname(apparent), name)).href : name);
  const options = { filename: apparent, importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? local };
  if (module_file) {
    // The import() of a module, whose own file is elsewhere.
    globalThis[IMPORT] = new vm.Script('(name, how) => import(name, how)', options).runInThisContext();
    delete globalThis.module;
    delete globalThis.exports;
    const found = (name) => {
      const at = require_here.resolve(name);
      // Node's own modules have no file.
      return path.isAbsolute(at) ? pathToFileURL(at).href : at.replace(/^(?!node:)/, 'node:');
    };
    globalThis[META] = Object.assign(Object.create(null), {
      url: pathToFileURL(apparent).href, filename: apparent, dirname: path.dirname(apparent),
      resolve: (name) => (/^(\.{0,2}\/|[a-z]+:)/.test(name) ? new URL(name, pathToFileURL(apparent)).href : found(name)),
    });
    // Rethrown outside the promise, so that node reports it like any uncaught error.
    const thrown = (error) => process.nextTick(() => { throw error; });
    import(pathToFileURL(module_file)).then(() => follow(globalThis[RESULT]), thrown);
    return;
  }
  globalThis.module = { exports: {}, filename: apparent, id: '.', loaded: false, children: [], paths: require_here.resolve.paths('x') };
  globalThis.exports = globalThis.module.exports;
  require_here.main = globalThis.module;
  given.add('module').add('exports');
  code = fs.readFileSync(script, 'utf8').replace(/^#!.*/, '') + tried;
  let compiled;
  try {
    compiled = new vm.Script(code, options);
  } catch (error) {
    if (!/Illegal return/.test(error.message)) throw error;
    // A CommonJS script may return at its top level.
    compiled = new vm.Script(`(function () {${code}\n}).call(module.exports)`, options);
  }
  value = compiled.runInThisContext();
  follow(value);
})(null);
