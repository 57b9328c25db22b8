// expect: warning=javascript.obfuscation warning=javascript.dynamic_execution
var _0x4f2a = ['\x63\x6f\x6e\x73\x6f\x6c\x65\x2e\x6c\x6f\x67', 'x'];
(function (_0x1b3c, _0x2d4e) {
  var _0x3e5f = function (_0x4a6b) { while (--_0x4a6b) { _0x1b3c.push(_0x1b3c.shift()); } };
  _0x3e5f(++_0x2d4e);
})(_0x4f2a, 0x1a3);
var _0x5c7d = function (_0x6e8f) { return _0x4f2a[_0x6e8f]; };
\u0065val(_0x5c7d('0x0'));
