import { readFile } from 'node:fs/promises';

{
  class Reading {
    constructor(value) {
      this.value = value;
    }

    scaled(factor) {
      if (factor === 0) {
        throw new Error(`nothing of ${factor} is left`);
      }
      return new Reading(this.value * factor);
    }
  }
  const words = ['a', 'b'].map((word) => word.length);
  for (const word of words) {
    console.log(word, new Reading(3).scaled(word).value, typeof readFile);
  }
}
