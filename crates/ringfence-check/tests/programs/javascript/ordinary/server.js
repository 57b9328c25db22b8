#!/usr/bin/env node
'use strict';

const express = require('express');
const http = require('http');
const path = require('path');
const { EventEmitter } = require('events');

class Store extends EventEmitter {
  #items = new Map();

  get size() {
    return this.#items.size;
  }

  add(item) {
    const id = this.#items.size + 1;
    this.#items.set(id, { id, ...item });
    this.emit('added', id);
    return this.#items.get(id);
  }

  remove(id) {
    return this.#items.delete(id);
  }
}

const store = new Store();
const app = express();
app.use(express.json());
app.use(express.static(path.join(__dirname, 'public')));

app.get('/items/:id', (req, res, next) => {
  const item = store.get?.(Number(req.params.id));
  if (!item) return next();
  res.json(item);
});

app.post('/items', async (req, res) => {
  try {
    res.status(201).json(store.add(req.body));
  } catch (error) {
    res.status(error.status ?? 500).json({ error: error.message });
  }
});

app.use((req, res) => res.status(404).end());

const server = http.createServer(app);
server.listen(process.env.PORT || 3000, () => console.log(`listening on ${server.address().port}`));
process.on('SIGTERM', () => server.close(() => process.exit(0)));
