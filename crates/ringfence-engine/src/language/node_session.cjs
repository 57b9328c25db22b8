() => {
  'use strict';
  // Serves the calls of a session, one after the other. The inspector evaluates like a console: names may be
  // redeclared, and the top level may await.
  const fs = require('fs'), net = require('net'), os = require('os'), path = require('path'), util = require('util'), vm = require('vm');
  const { Session } = require('inspector'), { createRequire } = require('module'), { Buffer } = require('buffer'), { pathToFileURL } = require('url');
  // Reopened files are not inherited by children.
  const requests = fs.openSync('/proc/self/fd/0', 'r'), report = fs.openSync('/proc/self/fd/3', 'w');
  fs.closeSync(0);
  fs.openSync('/dev/null', 'r');
  fs.closeSync(3);
  // Kept as they are now: a program may replace any of them.
  const { closeSync, createReadStream, openSync, unlinkSync, writeSync } = fs, { Writable } = require('stream'), put = Writable.prototype.write;
  const { parse, stringify } = JSON, { alloc, concat, from } = Buffer, { defineProperty, entries, fromEntries, getPrototypeOf, hasOwn, setPrototypeOf } = Object, { inspect: shown, isDeepStrictEqual } = util;
  const { cwd, nextTick } = process, { join } = path, { tmpdir } = os, { deleteProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
  const later = setTimeout, exit = process.reallyExit.bind(process), [executable] = process.argv, as_text = String, COMMON = Object.prototype;
  // All records of a call are sent with its end, unless they are long.
  let parts = [], bytes = 0;
  const write = (tag, data) => {
    const head = alloc(5);
    head.write(tag);
    head.writeUInt32BE(data.length, 1);
    parts.push(head, data);
    bytes += 5 + data.length;
    if (tag !== 'C' && bytes < 1 << 16) return;
    let all = concat(parts);
    [parts, bytes] = [[], 0];
    while (all.length) all = all.subarray(writeSync(report, all));
  };
  const tell = (tag, text, limit) => write(tag, from(as_text(text).slice(0, limit + 1)).subarray(0, limit + 1)); // one byte more than the limit marks a cut
  const inspect = (thing, how) => shown(thing, { __proto__: null, ...how, maxStringLength: Infinity });
  // Writes at once, without state that an interrupt could leave in the middle of a write.
  const printer = (fd) => {
    const stream = new Writable({ write: (chunk, encoding, then) => then() });
    const out = (chunk, encoding, then) => {
      if (typeof encoding === 'function') [encoding, then] = [undefined, encoding];
      let data = typeof chunk === 'string' ? from(chunk, encoding) : chunk, failure = null;
      while (data.length && !failure) {
        try {
          data = data.subarray(writeSync(fd, data));
        } catch (error) {
          // A child that shares the pipe may have made it non-blocking.
          if (error.code === 'EAGAIN') Atomics.wait(PAUSE, 0, 0, 1);
          else failure = error;
        }
      }
      if (then) nextTick(then, failure);
      return !failure;
    };
    return Object.assign(stream, { fd, _type: 'pipe', write: out, end: (...last) => { if (last.length && typeof last[0] !== 'function') out(...last); return stream; } });
  };
  const PAUSE = new Int32Array(new SharedArrayBuffer(4));
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) defineProperty(process, name, { value: printer(fd), configurable: true, enumerable: true, writable: true });
  let call = null, late = '', settling = false;
  const SETTLING_MS = 25;

  // A full pipe takes the rest later; printed output is written before the end of the call is reported.
  const flushed = (then) => {
    let left = 1;
    const one = () => { if (--left === 0) then(); };
    for (const name of ['stdout', 'stderr']) {
      try {
        const stream = process[name];
        if (!(stream.writableLength > 0) || stream.destroyed) continue;
        left++;
        put.call(stream, '', one);
      } catch {}
    }
    one();
  };
  const reopen = (file) => {
    try {
      closeSync(0);
    } catch {} // the program has closed it
    openSync(file, 'r');
  };
  const done = (ok) => {
    const { number, interrupted } = call;
    call.ended = true;
    settling = interrupted;
    flushed(() => {
      call = null;
      if (stdin_given) {
        stdin_given = false;
        reopen('/dev/null');
      }
      try {
        write('C', from(`{"call":${number},"ok":${ok}}`));
      } catch {
        exit(1);
      }
      if (!settling) return nextTick(next);
      later(() => { settle_down(); next(); }, SETTLING_MS);
    });
  };
  const runs = (mine) => call !== null && call === mine && !mine.ended;
  const told = (error) => {
    const known = error instanceof Error || (error && typeof error === 'object' && 'stack' in error);
    const own = (line) => !/^\s+at .*(node:|\[eval\]|ringfence)/.test(line);
    return { known, stack: (known ? String(error.stack) : `Uncaught ${inspect(error)}`).split('\n').filter(own).join('\n') + '\n' };
  };
  const fail = (error, at) => {
    try {
      const { known, stack } = told(error);
      // The stack of a syntax error has no line of the code.
      const line = stack.split(`${call.name}:`)[1]?.match(/^\d+/) ?? (known && error.name === 'SyntaxError' && at && [String(at)]);
      tell('E', known ? (error.name || 'Error') : typeof error, 1024);
      tell('M', known ? error.message : inspect(error), 65536);
      tell('T', stack, 262144);
      if (line) tell('L', line[0], 16);
      // An exchange reports to its own requester, and not into the next call.
      if (!call.exchange) writeSync(2, stack);
    } catch {
      tell('E', 'Error', 1024);
    }
    done(false);
  };
  const succeed = (value) => {
    if (value !== undefined) {
      const is_long = typeof value === 'string' && value.length > 1 << 20; // what is shown of it is much shorter
      let text;
      try {
        text = inspect(is_long ? value.slice(0, 1 << 20) : value, { depth: 6 });
      } catch {
        text = '<unrepresentable>';
      }
      tell('P', text, 65536);
      try {
        const json = is_long ? undefined : stringify(value);
        if (json !== undefined && json.length <= 1 << 20 && isDeepStrictEqual(parse(json), value)) tell('R', json, 1 << 20);
      } catch {}
    }
    done(true);
  };

  const session = new Session();
  session.connect();
  // Members that the program has given to all objects change the inspector's messages, and so are hidden from it.
  const MEMBERS = new Set(ownKeys(COMMON)), OTHERS = [Array, String, Number, Boolean].map((kind) => kind.prototype);
  const additions = () => {
    const found = [];
    for (const name of ownKeys(COMMON)) if (!MEMBERS.has(name)) found.push([COMMON, name]);
    for (const all of OTHERS) if (hasOwn(all, 'toJSON')) found.push([all, 'toJSON']);
    return found;
  };
  let hidden = [];
  const restore = () => {
    for (const [all, name, how] of hidden) defineProperty(all, name, how);
    hidden = [];
  };
  const post = (...message) => {
    for (const [all, name] of additions()) {
      const how = setPrototypeOf(getOwnPropertyDescriptor(all, name), null);
      hidden.push([all, name, how]);
      deleteProperty(all, name);
    }
    try {
      Session.prototype.post.apply(session, message);
    } finally {
      restore();
    }
  };
  let taken, step;
  defineProperty(globalThis, '__ringfence__', { value: { __proto__: null, take: (value) => { taken = value; }, step: () => step() } });
  // Returns the object itself; the inspector returns only a description.
  const real = (remote) => {
    taken = undefined;
    const argument = hasOwn(remote, 'objectId') ? { objectId: remote.objectId } : hasOwn(remote, 'unserializableValue') ? { unserializableValue: remote.unserializableValue } : { value: hasOwn(remote, 'value') ? remote.value : undefined };
    post('Runtime.callFunctionOn', { functionDeclaration: 'function (value) { __ringfence__.take(value); }', objectId: anchor, arguments: [argument] });
    const value = taken;
    taken = undefined;
    return value;
  };
  let anchor;
  post('Runtime.evaluate', { expression: 'globalThis' }, (error, answer) => { anchor = answer.result.objectId; });
  // While this is on the stack an interrupt ends the running code.
  const breakable = new vm.Script('__ringfence__.step()', { filename: 'ringfence' });
  const interruptible = (what) => {
    step = what;
    try {
      breakable.runInThisContext({ __proto__: null, breakOnSigint: true });
    } catch (error) {
      if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw interrupted();
      throw error;
    } finally {
      restore(); // an interrupt skips that of `post`
      if (shared) share();
    }
  };
  // Takes interrupts that were repeated as the call ended, before the next call begins, and drops them. Node.js keeps
  // one that arrived just as `breakOnSigint` was left for the next use of that.
  const settle_down = () => {
    try {
      interruptible(() => Atomics.wait(PAUSE, 0, 0, SETTLING_MS));
    } catch {}
    settling = false;
  };
  const interrupted = () => {
    const error = new Error('interrupted');
    if (call) call.interrupted = true;
    error.name = 'Interrupted';
    error.stack = 'Interrupted: the call was interrupted';
    return error;
  };
  // An interrupt is SIGINT for running code and SIGSTKFLT for waiting code. Node.js exits on a SIGINT between two uses
  // of `breakOnSigint`, unless its watchdog has been started too: then the signal has no effect.
  const { noDeprecation } = process;
  process.noDeprecation = true;
  const watchdog = process.binding('contextify');
  process.noDeprecation = noDeprecation;
  watchdog.startSigintWatchdog();
  process.on('SIGSTKFLT', () => { if (runs(call)) fail(interrupted()); });
  // A program that handles SIGINT itself gets it while it waits, and each use of `breakOnSigint` removes its handlers.
  let shared = false;
  process.on('newListener', (name) => {
    if (name !== 'SIGINT' || shared) return;
    shared = true;
    watchdog.stopSigintWatchdog();
  });
  const share = () => {
    const theirs = process.rawListeners('SIGINT');
    process.removeAllListeners('SIGINT');
    for (const their of theirs) process.on('SIGINT', their);
    if (theirs.length) return;
    watchdog.startSigintWatchdog();
    shared = false;
  };
  // An error of the running call; without one it is printed by the next.
  process.on('uncaughtException', (error) => {
    if (runs(call)) return fail(error);
    try {
      late = (late + told(error).stack).slice(0, 1 << 16);
    } catch {}
  });

  // Code evaluated by the inspector has no import() of its own; the parser has put calls of this in its place.
  const local = (name, options) => import(/^\.{0,2}\//.test(name) ? pathToFileURL(path.resolve(name)).href : name, options);
  defineProperty(globalThis, '__import__', { value: local });

  let stdin_given = false;
  // Made for each call on first use: a stream at its end stays there.
  const fresh_stdin = () => {
    const become = (what) => defineProperty(process, 'stdin', { __proto__: null, configurable: true, enumerable: true, ...what });
    become({
      get() {
        const value = createReadStream('', { __proto__: null, fd: 0, autoClose: false });
        become({ value, writable: true });
        return value;
      },
    });
  };
  const evaluate = (request, input) => {
    for (const [name, value] of entries(request.env)) process.env[name] = value;
    process.argv = [executable, join(cwd(), request.name), ...request.args];
    if (input.length) {
      const file = join(tmpdir(), `.stdin-${process.pid}`);
      const to = openSync(file, 'w', 0o600);
      while (input.length) input = input.subarray(writeSync(to, input));
      closeSync(to);
      reopen(file);
      unlinkSync(file);
      stdin_given = true;
    }
    fresh_stdin();
    const mine = call;
    const code = request.code.replace(/^#!.*/, '');
    const expression = `${code}\n//# sourceURL=${mine.name}`;
    // Read last, when no member of an object matters any more and the program may have its own again.
    const how = { expression, replMode: true, awaitPromise: true, get objectGroup() { restore(); return 'call'; } };
    const finish = (error, answer) => {
      if (!runs(mine)) return;
      try {
        // Interrupted code first fails with the interrupt.
        if (error) nextTick(() => runs(mine) && fail(new Error(error.message)));
        else if (hasOwn(answer, 'exceptionDetails')) fail(answer.exceptionDetails.exception ? real(answer.exceptionDetails.exception) : new Error(answer.exceptionDetails.text), Math.min(answer.exceptionDetails.lineNumber + 1, code.split('\n').length));
        else settle(real(answer.result), mine);
      } catch (broken) {
        if (runs(mine)) fail(broken);
      } finally {
        post('Runtime.releaseObjectGroup', { objectGroup: 'call' });
      }
    };
    interruptible(() => post('Runtime.evaluate', how, finish));
  };
  // Values for and from other sessions, as JSON with tags for kinds that JSON lacks.
  const tagged = (kind, value) => ({ $type: kind, value });
  const refuse = (place, why) => { throw new TypeError(`${place}: ${why}`); };
  const plain = (value, place, depth) => {
    if (depth > 100) refuse(place, 'deeper than 100, or a cycle');
    if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
    if (typeof value === 'bigint') return tagged('int', String(value));
    // A float that large would be read as an exact integer.
    if (typeof value === 'number') return Number.isFinite(value) && !(Number.isInteger(value) && Math.abs(value) > 2 ** 53) ? value : tagged('float', String(value));
    if (typeof value !== 'object') refuse(place, `a value of type ${typeof value} stays where it is`);
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? refuse(place, 'not a date') : tagged('datetime', value.toISOString());
    if (value instanceof Uint8Array) return tagged('bytes', from(value.buffer, value.byteOffset, value.byteLength).toString('base64'));
    if (value instanceof Set) value = [...value];
    if (Array.isArray(value)) return Array.from(value, (part, at) => plain(part, `${place}[${at}]`, depth + 1));
    if (value instanceof Map) {
      for (const key of value.keys()) if (typeof key !== 'string') refuse(place, 'a key that is no text');
    } else if (![COMMON, null].includes(getPrototypeOf(value))) {
      refuse(place, `a value of class ${value.constructor?.name} stays where it is`);
    }
    const all = value instanceof Map ? [...value] : entries(value);
    const made = fromEntries(all.map(([key, part]) => [key, plain(part, `${place}.${key}`, depth + 1)]));
    return hasOwn(made, '$type') ? tagged('object', made) : made;
  };
  const READERS = {
    int: BigInt,
    float: Number,
    bytes: (text) => from(text, 'base64'),
    date: (text) => text,
    // A Date is an instant. A time without a zone is not one, and stays text.
    datetime: (text) => {
      const date = new Date(text);
      if (Number.isNaN(date.getTime())) throw new RangeError('no time');
      return /(Z|[+-]\d\d:?\d\d)$/.test(text) ? date : text;
    },
  };
  const made = (value, place) => {
    if (Array.isArray(value)) return value.map((part, at) => made(part, `${place}[${at}]`));
    if (value === null || typeof value !== 'object') return value;
    const parts = (object) => fromEntries(entries(object).map(([key, part]) => [key, made(part, `${place}.${key}`)]));
    if (!hasOwn(value, '$type')) return parts(value);
    const { $type: kind, value: inner } = value;
    if (kind === 'object' && inner !== null && typeof inner === 'object' && !Array.isArray(inner)) return parts(inner);
    if (typeof kind !== 'string' || !hasOwn(READERS, kind) || typeof inner !== 'string') refuse(place, 'a $type and a value that no session gives');
    try {
      return READERS[kind](inner);
    } catch {
      return refuse(place, `a ${kind} cannot be ${inspect(inner.slice(0, 40))}`);
    }
  };
  const OWN = new Set(Object.getOwnPropertyNames(globalThis));
  const exchange = (request) => {
    let expression = request.get;
    if (request.set) {
      // A variable of that name would shadow names that Node.js itself and this session use.
      if (OWN.has(request.set)) throw new SyntaxError(`${request.set} is a name of Node.js itself`);
      const value = made(request.value, request.set);
      defineProperty(globalThis, '__given__', { __proto__: null, value, configurable: true });
      expression = `let ${request.set} = __given__`;
    }
    interruptible(() => post('Runtime.evaluate', { expression, replMode: true, objectGroup: 'call' }, (error, answer) => {
      delete globalThis.__given__;
      if (error || hasOwn(answer, 'exceptionDetails')) return fail(error ? new Error(error.message) : real(answer.exceptionDetails.exception));
      try {
        if (request.get) {
          const text = stringify(plain(real(answer.result), request.get, 0));
          if (text.length > 16 << 20) refuse(request.get, 'longer than 16 MiB');
          tell('J', text, 24 << 20);
        }
      } catch (refused) {
        return fail(refused);
      }
      done(true);
    }));
  };
  // A promise as a result is replaced by its final value.
  const settle = (value, mine) => {
    let then;
    try {
      then = value?.then;
    } catch {} // a value without a readable `then` is no promise
    if (typeof then !== 'function') return succeed(value);
    Promise.resolve(value).then((final) => runs(mine) && succeed(final), (error) => runs(mine) && fail(error));
  };

  let arrived = [], count = 0, length, request;
  // Takes the next bytes of the requests, once so many have arrived.
  const take = (size) => {
    if (count < size) return undefined;
    const all = arrived.length === 1 ? arrived[0] : concat(arrived);
    count -= size;
    arrived = count ? [all.subarray(size)] : [];
    return all.subarray(0, size);
  };
  const next = () => {
    if (call || settling) return;
    length ??= take(4)?.readUInt32BE(0);
    if (length > 96 << 20) exit(1);
    const text = request ?? (length && take(length));
    request ??= text && setPrototypeOf(parse(text), null);
    const input = request && take(request.stdin ?? 0);
    if (!input) return;
    const current = request;
    length = request = undefined;
    call = { __proto__: null, number: current.call, name: current.name ?? 'bridge', exchange: !hasOwn(current, 'code'), interrupted: false, ended: false };
    if (late) {
      try {
        writeSync(2, late);
      } catch {}
      late = '';
    }
    try {
      if (call.exchange) exchange(current);
      else evaluate(current, input);
    } catch (error) {
      if (runs(call)) fail(error);
    }
  };
  const require_here = createRequire(path.join(process.cwd(), 'x'));
  Object.assign(globalThis, { require: require_here, module: { exports: {} } });
  globalThis.exports = globalThis.module.exports;
  const pipe = new net.Socket({ fd: requests, readable: true, writable: false });
  pipe.on('data', (part) => {
    arrived.push(part);
    count += part.length;
    next();
  });
  pipe.on('end', () => process.exit(0));
  call = { number: 0, interrupted: false };
  done(true);
}
