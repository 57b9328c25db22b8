import type { Request, Response } from 'express';
import { Injectable, Inject } from '@nestjs/common';
import * as fs from 'node:fs';

export enum Level { Debug = 'debug', Info = 'info', Error = 'error' }

export interface Entry<T extends object = Record<string, unknown>> {
  readonly id: number;
  level: Level;
  data?: T;
  tags: Array<string | number>;
}

type Keys<T> = { [K in keyof T]: T[K] extends Function ? never : K }[keyof T];
type Handler = (req: Request, res: Response) => Promise<void> | void;

@Injectable()
export class Log<T extends object> implements Iterable<Entry<T>> {
  private entries: Entry<T>[] = [];
  static readonly max = 1_000 as const;

  constructor(@Inject('options') private readonly options: { path: string; level?: Level }) {}

  add(level: Level, data?: T, ...tags: string[]): Entry<T> {
    const entry: Entry<T> = { id: this.entries.length, level, data, tags };
    if (this.entries.push(entry) > Log.max) this.entries.shift();
    return entry;
  }

  *[Symbol.iterator](): Iterator<Entry<T>> {
    for (const entry of this.entries) yield entry;
  }

  async save(): Promise<void> {
    await fs.promises.writeFile(this.options.path, JSON.stringify([...this], null, 2));
  }
}

export function pick<T, K extends keyof T>(value: T, ...keys: K[]): Pick<T, K> {
  return Object.fromEntries(keys.map((key) => [key, value[key]])) as Pick<T, K>;
}

export const handler: Handler = async (req, res) => {
  const id = Number((req.query as { id?: string }).id ?? 0)!;
  res.json({ id, ok: !Number.isNaN(id) satisfies boolean });
};

namespace Internal {
  export const version = '1.0';
  export function parse(text: string): unknown { return JSON.parse(text); }
}
console.log(Internal.version, <number>(Internal.parse('1') as number));
