//! Groups F, H and O as far as they concern egress.
//!
//! These ids have no row here, because other tests cover them better: F07, F23 with all clients, and DNS-only cases
//! (the table of `every_client_reaches_only_allowed_hosts`; `checked_address_is_the_one_that_is_dialled`), F11
//! (the table of docs/egress.md), F15 and the malformed hellos of F13
//! (`tls_for_another_host_gets_an_alert_and_reaches_no_server`), F21 (`other_protocols_are_refused_on_the_tls_port`),
//! the rest of F17 (`ambiguous_http_reaches_no_server`, `pipelined_request_for_another_host_is_refused_alone`), F27
//! (`tunnel_is_cut_only_when_rules_no_longer_allow_it`), F31 (`transferred_content_arrives_byte_for_byte`), H09
//! (`every_documented_form_is_found`, `no_secret_leaks_by_any_route_in_any_form`), O01 and O06 (`approvals` of the
//! stories), O03 (`sandboxed_program_cannot_reach_the_approvals_socket`, `no_tool_or_argument_approves_a_request`).

use super::EgressAttack;

const fn attack(
    id: &'static str,
    claim: &'static str,
    name: &'static str,
    probe: &'static str,
) -> EgressAttack {
    EgressAttack {
        id,
        name,
        claim,
        language: "python",
        probe,
        flags: &[],
        denial: None,
    }
}

const fn node(attack: EgressAttack) -> EgressAttack {
    EgressAttack {
        language: "node",
        ..attack
    }
}

const fn shell(attack: EgressAttack) -> EgressAttack {
    EgressAttack {
        language: "shell",
        ..attack
    }
}

const fn denied(attack: EgressAttack, denial: &'static str) -> EgressAttack {
    EgressAttack {
        denial: Some(denial),
        ..attack
    }
}

const fn with(attack: EgressAttack, flags: &'static [&'static str]) -> EgressAttack {
    EgressAttack { flags, ..attack }
}

const SECRET: &[&str] = &["--secret", "TOKEN"];
const OPENED: &[&str] = &[
    "--env",
    "EGRESS_ALLOW=*",
    "--env",
    "http_proxy=http://other.test:80",
];

#[rustfmt::skip]
pub const ALL: &[EgressAttack] = &[
    denied(attack("F01", "NET-4", "Python reaches no address by number, with any proxy setting", "
import os, socket
os.environ['NO_PROXY'] = '*'
try: socket.create_connection(('BY_NUMBER', 80), 3).close(); print('REACHED')
except OSError as error: print('BLOCKED', error)"), "egress.no_route"),
    denied(node(attack("F01", "NET-4", "Node reaches no address by number", "
process.env.NO_PROXY = '*';
const s = require('net').connect(80, 'BY_NUMBER');
s.on('connect', () => { console.log('REACHED'); s.destroy(); });
s.on('error', error => console.log('BLOCKED', error.code));")), "egress.no_route"),
    denied(shell(attack("F01", "NET-4", "curl reaches no address by number", "
NO_PROXY='*' curl -sS --noproxy '*' --max-time 5 http://BY_NUMBER/ && echo REACHED || echo BLOCKED")), "egress.no_route"),
    denied(attack("F03", "NET-4", "the proxy forwards no plain request to a denied host", "
import socket
s = socket.create_connection(('PROXY_HOST', PROXY_PORT), 5)
s.sendall(b'GET http://other.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n')
said = s.makefile('rb').read()
print('REACHED' if b'hello from' in said else 'BLOCKED', said[:40])"), "egress.name"),
    denied(shell(attack("F03", "NET-4", "curl reaches no denied host through the proxy", "
curl -sS --max-time 5 -x http://PROXY_HOST:PROXY_PORT http://other.test/ | grep 'hello from' && echo REACHED || echo BLOCKED")), "egress.name"),
    denied(attack("F05", "NET-4", "the proxy opens no tunnel to a port that no rule names", "
import socket
got = []
for port in (0, 22, 25, 53, 3306, 6379, 65536):
    s = socket.create_connection(('PROXY_HOST', PROXY_PORT), 5)
    s.sendall(b'CONNECT good.test:%d HTTP/1.1\\r\\nHost: good.test:%d\\r\\n\\r\\n' % (port, port))
    if b' 200 ' in s.recv(100): got.append(port)
print('REACHED' if got else 'BLOCKED', got)"), "egress.port"),
    attack("F09", "NET-4", "the proxy accepts no ambiguous host", "
import socket
got = []
for host in (b'', b'allowed@other.test', b'good.test@other.test', b'good.test other.test', b'good.test:443', b'good.test%00.other.test',
             b'::ffff:93.184.216.35%x.good.test', b'good.test\\r\\nX: y', b'other.test#good.test', b'other.test\\\\.good.test', b'a' * 257 + b'.good.test'):
    for text in (b'CONNECT %s:443 HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n', b'GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n'):
        s = socket.create_connection(('PROXY_HOST', PROXY_PORT), 5)
        s.sendall(text % (host, host))
        said = s.recv(100)
        if b' 200 ' in said: got.append((host, said))
print('REACHED' if got else 'BLOCKED', got)"),
    denied(attack("F13", "NET-5", "Python cannot send another SNI than the name it connected to, or none", "
import socket, ssl
context, got = ssl._create_unverified_context(), []
context.check_hostname = False
for name in ('other.test', None, 'good.test.other.test', 'xgood.test'):
    try: context.wrap_socket(socket.create_connection(('GOOD', 443), 5), server_hostname=name); got.append(name)
    except OSError: pass
print('REACHED' if got else 'BLOCKED', got)"), "egress.sni"),
    denied(node(attack("F13", "NET-5", "Node cannot send another SNI than the name it connected to", "
const s = require('tls').connect({host: 'GOOD', port: 443, servername: 'other.test', rejectUnauthorized: false});
s.on('secureConnect', () => { console.log('REACHED'); s.destroy(); });
s.on('error', error => console.log('BLOCKED', error.code));")), "egress.sni"),
    denied(shell(attack("F13", "NET-5", "curl cannot send another SNI than the name it connected to", "
curl -sSk --max-time 5 --connect-to other.test:443:GOOD:443 https://other.test/ | grep 'hello from' && echo REACHED || echo BLOCKED")), "egress.sni"),
    denied(attack("F13", "NET-5", "a ClientHello in pieces of one byte is read completely", "
import socket, ssl
context = ssl._create_unverified_context()
said, says = ssl.MemoryBIO(), ssl.MemoryBIO()
try: context.wrap_bio(said, says, server_hostname='other.test').do_handshake()
except ssl.SSLWantReadError: pass
s = socket.create_connection(('GOOD', 443), 5)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for byte in says.read(): s.send(bytes([byte]))
answer = s.recv(1)
print('REACHED' if answer == b'\\x16' else 'BLOCKED', answer)"), "egress.sni"),
    attack("F17", "NET-5", "a request with two Host headers reaches neither host", "
import socket
s = socket.create_connection(('GOOD', 80), 5)
s.sendall(b'GET / HTTP/1.1\\r\\nHost: other.test\\r\\nHost: good.test\\r\\n\\r\\n')
try: said = s.makefile('rb').read()
except OSError as error: said = repr(error).encode()
print('REACHED' if b'hello from' in said else 'BLOCKED', said[:40])"),
    denied(attack("F19", "NET-5", "the target and the Host header of a proxy request must agree", "
import socket
s = socket.create_connection(('PROXY_HOST', PROXY_PORT), 5)
s.sendall(b'GET http://good.test/ HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n')
said = s.makefile('rb').read()
print('REACHED' if b'hello from other' in said else 'BLOCKED', said[:40])"), "egress.host"),
    denied(shell(attack("F19", "NET-5", "curl cannot request another Host than the one it connected to", "
curl -sS --max-time 5 -H 'Host: other.test' http://GOOD/ | grep 'hello from' && echo REACHED || echo BLOCKED")), "egress.host"),
    denied(node(attack("F19", "NET-5", "Node cannot request another Host than the one it connected to", "
require('http').get({host: 'GOOD', headers: {Host: 'other.test'}}, answer => {
  let said = '';
  answer.on('data', more => said += more);
  answer.on('end', () => console.log(said.includes('hello from') ? 'REACHED' : 'BLOCKED', answer.statusCode));
}).on('error', error => console.log('BLOCKED', error.code));")), "egress.host"),
    attack("F23", "NET-4", "DNS queries from Python's own sockets reach no server, by UDP or TCP", "
import socket
query = b'\\x12\\x34\\x01\\x00\\x00\\x01' + bytes(6) + b'\\x06i-know\\x05other\\x04test\\x00\\x00\\x01\\x00\\x01'
for to in (('127.0.0.1', 5353), ('8.8.8.8', 53), ('198.18.0.1', 53), ('224.0.0.251', 5353), ('224.0.0.252', 5355), ('198.18.0.2', 443)):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(.5)
    try: s.sendto(query, to); s.recv(512)
    except OSError: pass
for to in (('8.8.8.8', 53), ('8.8.8.8', 853), ('198.18.0.1', 853)):
    try: socket.create_connection(to, 1); print('REACHED', to)
    except OSError: pass
print('BLOCKED')"),
    node(attack("F23", "NET-4", "DNS queries from Node's own sockets reach no server", "
const dns = new (require('dns').promises.Resolver)({timeout: 500, tries: 1});
(async () => {
  for (const server of ['127.0.0.1:5353', '8.8.8.8', '198.18.0.1']) {
    dns.setServers([server]);
    for (const kind of ['A', 'TXT', 'MX']) { try { await dns.resolve('i-know.other.test', kind); } catch {} }
  }
  console.log('BLOCKED');
})();")),
    attack("F25", "NET-4", "there are no raw sockets, pings, SCTP or UDP-Lite", "
import socket, struct
got, ping = [], struct.pack('>BBHHH', 8, 0, 0xf7ff - 1, 0, 1)
for kind, protocol in ((socket.SOCK_RAW, 1), (socket.SOCK_RAW, 255), (socket.SOCK_DGRAM, 1), (socket.SOCK_STREAM, 132), (socket.SOCK_SEQPACKET, 132), (socket.SOCK_DGRAM, 136)):
    try: s = socket.socket(socket.AF_INET, kind, protocol)
    except OSError: continue
    try: s.settimeout(1); s.sendto(ping, ('BY_NUMBER', 9)); got.append((kind, protocol))
    except OSError: pass
print('REACHED' if got else 'BLOCKED', got)"),
    attack("H01", "SEC-1", "a secret not given to a run is nowhere in its sandbox", "
import glob, os, re
pattern, got = re.compile(b'canary' + b'-[0-9a-f]{24}'), set()
def look(path, ranges=(None,)):
    try:
        with open(path, 'rb', 0) as file:
            for span in ranges:
                if span: file.seek(span[0])
                if pattern.search(file.read(span[1] - span[0] if span else 1 << 24) or b''): got.add(path)
    except (OSError, OverflowError, ValueError): pass
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/task/*/comm'): look(path)
spans = [line.split()[0].split('-') for line in open('/proc/self/maps') if ' rw' in line]
for start, end in spans: look('/proc/self/mem', [(int(start, 16), int(end, 16))])
for top in ('/code', '/workspace', '/output', '/home', '/tmp', '/dev/shm', '/run', '/etc', '/var/tmp', '/packages') if 'HOME' in os.environ else ():
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path): look(path)
print('REACHED' if got else 'BLOCKED', sorted(got))"),
    with(attack("H07", "SEC-2", "a secret that Python prints in two writes with a pause is redacted", "
import os, time
token = os.environ['TOKEN']
os.write(1, token[:9].encode()); time.sleep(.1); os.write(1, token[9:].encode() + b'\\nBLOCKED\\n')"), SECRET),
    with(node(attack("H07", "SEC-2", "a secret that Node prints in two writes with a pause is redacted", "
const token = process.env.TOKEN;
process.stdout.write(token.slice(0, 9));
setTimeout(() => console.log(token.slice(9) + '\\nBLOCKED'), 100);")), SECRET),
    with(shell(attack("H07", "SEC-2", "a secret that many shell processes print letter by letter is redacted", "
for ((at = 0; at < ${#TOKEN}; at++)); do (printf '%s' \"${TOKEN:at:1}\"); done; echo; echo BLOCKED")), SECRET),
    attack("H11", "NET-4", "the proxy serves no paths of its own under any name", "
import socket
got = []
for host in ('198.18.0.1:3128', '198.18.0.1', 'localhost', '127.0.0.1', 'vault', 'ringfence', 'ringfence.internal'):
    for path in ('', '/', '/vault', '/secrets', '/v1/secrets', '/admin', '/config', '/mcp', '/metrics', '/.well-known/x'):
        for target in (path or '*', 'http://' + host + path):
            s = socket.create_connection(('PROXY_HOST', PROXY_PORT), 5)
            s.sendall(('GET %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % (target, host)).encode())
            if b' 200 ' in s.recv(100): got.append(target)
print('REACHED' if got else 'BLOCKED', got[:5])"),
    attack("H11", "NET-4", "the server listens in a sandbox only on the ports of DNS, the proxy and allowed hosts", "
import socket
got = []
for port in [*range(1, 4200), 5000, 5432, 6379, 8000, 8080, 8443, 9000, 9090, 9100]:
    s = socket.socket(); s.settimeout(1)
    if s.connect_ex(('PROXY_HOST', port)) == 0: got.append(port)
    s.close()
more = set(got) - {53, 80, 443, 3128}
print('REACHED' if more else 'BLOCKED', sorted(more))"),
    with(attack("H15", "SEC-2", "a secret that a host echoes from a header is redacted, in plain text and as Basic", "
import base64, os, urllib.request
token = os.environ['TOKEN']
basic = base64.b64encode(b'user:' + token.encode()).decode()
request = urllib.request.Request('http://GOOD/echo', headers={'Authorization': 'Basic ' + basic, 'X-Key': 'Bearer ' + token})
answer = urllib.request.urlopen(request, timeout=5)
while part := answer.read(7): print(part.decode(), end='', flush=True)
print('\\nBLOCKED')"), SECRET),
    denied(with(attack("O05", "NET-7", "variables of a caller and files of a program do not widen the operator's rules", "
import os, pathlib, urllib.request
for path in ('ringfence.yaml', '.ringfence.yaml', '.config/ringfence/config.yaml', 'config.yaml'):
    for top in (os.getcwd(), os.environ['HOME'], '/tmp') if 'HOME' in os.environ else ():
        try:
            file = pathlib.Path(top, path); file.parent.mkdir(parents=True, exist_ok=True); file.write_text('egress:\\n  allow: [\"*\"]\\n')
        except OSError: pass
os.environ['RINGFENCE_EGRESS_ALLOW'] = '*'
try: print('REACHED', urllib.request.urlopen('http://OTHER/', timeout=5).read())
except OSError as error: print('BLOCKED', error)"), OPENED), "egress.name"),
];
