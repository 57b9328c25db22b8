const fibonacci = (n, memo = {}) => (n < 2 ? n : (memo[n] ??= fibonacci(n - 1, memo) + fibonacci(n - 2, memo)));

function* primes() {
  const found = [];
  for (let n = 2; ; n++) {
    if (found.every((p) => n % p !== 0)) {
      found.push(n);
      yield n;
    }
  }
}

function quicksort([pivot, ...rest]) {
  if (pivot === undefined) return [];
  const [low, high] = [rest.filter((x) => x < pivot), rest.filter((x) => x >= pivot)];
  return [...quicksort(low), pivot, ...quicksort(high)];
}

class Node_ {
  static #count = 0;
  constructor(value, next = null) {
    Object.assign(this, { value, next });
    Node_.#count += 1;
  }
  *[Symbol.iterator]() {
    for (let node = this; node; node = node.next) yield node.value;
  }
  static get count() {
    return Node_.#count;
  }
}

const words = 'the quick brown fox jumps over the lazy dog the end'.split(' ');
const counts = words.reduce((all, word) => ({ ...all, [word]: (all[word] || 0) + 1 }), {});
const take = (n, it) => { const all = []; for (const x of it) { if (all.push(x) >= n) break; } return all; };

console.log(fibonacci(50), take(10, primes()), quicksort([3, 1, 2]), counts);
console.log([...new Node_(1, new Node_(2))], Node_.count, Number.parseFloat('1.5').toFixed(2));
const evaluate = (text) => JSON.parse(text);
console.log(evaluate('{"eval": "require(\'child_process\')"}'), /(?<year>\d{4})/u.exec('2024')?.groups.year);
