// Run with: ringfence run examples/hello.mjs
import { hostname } from 'node:os';

console.log(`Hello from Node ${process.versions.node} on ${hostname()}!`);
const numbers = await Promise.all([20, 22]);
({ answer: numbers[0] + numbers[1] });
