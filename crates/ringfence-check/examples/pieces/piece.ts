import { readFile } from 'node:fs/promises';

{
  class Reading<Unit extends string> {
    constructor(private readonly value: number, readonly unit: Unit) {}

    scaled(factor: number): Reading<Unit> {
      if (factor === 0) {
        throw new Error(`nothing of ${this.unit} is left`);
      }
      return new Reading(this.value * factor, this.unit);
    }
  }
  type Words = Record<string, number>;
  const words: Words = { a: 1, b: 2 };
  for (const [word, count] of Object.entries(words)) {
    console.log(word, new Reading(count, 'm').scaled(2), typeof readFile);
  }
}

