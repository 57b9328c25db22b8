// A test API: HTTP/1.1 and HTTP/2 over TLS on one port. It echoes the Authorization header in several encodings, and
// prints each request as a line of JSON on standard output.
const fs = require('node:fs'), http2 = require('node:http2'), zlib = require('node:zlib');
const [address, directory, port] = process.argv.slice(2); // port: 443 by default; 0: a free port, which is printed
const options = {
  allowHTTP1: true,
  maxSessionMemory: 1000, // MB, enough for all the large responses at once
  key: fs.readFileSync(`${directory}/leaf.key`),
  cert: fs.readFileSync(`${directory}/leaf.pem`),
};
const server = http2.createSecureServer(options, (request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const { headers } = request, sent = headers.authorization ?? '';
    console.log(JSON.stringify({
      version: request.httpVersion, method: request.method, url: request.url, headers,
      body: Buffer.concat(chunks).toString(), trailers: request.trailers,
    }));
    const secret = sent.split(' ').pop(), bytes = Buffer.from(secret);
    response.setHeader('x-heard', sent);
    if (request.url === '/reason') response.statusMessage = `as ${secret} asked`;
    if (request.url === '/packed') {
      response.setHeader('content-encoding', 'gzip');
      return response.end(zlib.gzipSync(sent));
    }
    if (request.url === '/pieces') {
      for (const letter of `heard ${sent} well`) response.write(letter);
      return response.end();
    }
    if (request.url === '/away') { // the connection takes no more requests, and this answer does not end
      request.stream.session.goaway(0, request.stream.id);
      return response.write('a');
    }
    if (request.url === '/large') return response.end(Buffer.alloc(4 << 20, 'x'));
    response.end(JSON.stringify({
      plain: sent, base64: bytes.toString('base64'), hex: bytes.toString('hex'), url: encodeURIComponent(secret),
      query: request.url,
    }));
  });
});
server.listen(Number(port ?? 443), address, () => console.log(port ? server.address().port : '"ready"'));
