;(function (root, factory) {
  'use strict';
  if (typeof define === 'function' && define.amd) {
    define(['exports'], factory);
  } else if (typeof module === 'object' && module.exports) {
    factory(module.exports);
  } else {
    factory((root.tiny = {}));
  }
})(typeof self !== 'undefined' ? self : this, function (exports) {
  var hasOwn = Object.prototype.hasOwnProperty, slice = Array.prototype.slice;

  function inherits(Child, Parent) {
    Child.prototype = Object.create(Parent.prototype, { constructor: { value: Child, writable: true } });
    Child.super_ = Parent;
  }

  function Emitter() {
    if (!(this instanceof Emitter)) return new Emitter();
    this._events = {};
  }
  Emitter.prototype.on = function (name, listener) {
    (this._events[name] || (this._events[name] = [])).push(listener);
    return this;
  };
  Emitter.prototype.emit = function (name) {
    var args = slice.call(arguments, 1), list = this._events[name] || [], i;
    for (i = 0; i < list.length; i++) list[i].apply(this, args);
    return list.length > 0;
  };

  function Queue() { Emitter.call(this); this.jobs = []; }
  inherits(Queue, Emitter);
  Queue.prototype.add = function (job, delay) {
    var self = this;
    self.jobs.push(job);
    setTimeout(function () { self.emit('done', job.call(self, null)); }, delay || 0);
    return self;
  };

  exports.extend = function (target) {
    slice.call(arguments, 1).forEach(function (source) {
      for (var key in source) if (hasOwn.call(source, key)) target[key] = source[key];
    });
    return target;
  };
  exports.Queue = Queue;
  exports.template = function (text, data) {
    return text.replace(/\{(\w+)\}/g, function (all, key) { return key in data ? String(data[key]) : all; });
  };
});
