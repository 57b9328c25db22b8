import React, { useEffect, useMemo, useState, type FC, type ReactNode } from 'react';

interface Item<T = unknown> { id: string; title: string; done?: boolean; value?: T }
type Props = { url: string; children?: ReactNode; onSelect?: (item: Item) => void };

const useItems = (url: string): [Item[], boolean] => {
  const [items, setItems] = useState<Item[]>([]);
  const [busy, setBusy] = useState(true);
  useEffect(() => {
    const controller = new AbortController();
    (async () => {
      const response = await fetch(url, { signal: controller.signal });
      setItems((await response.json()) as Item[]);
      setBusy(false);
    })().catch((error: unknown) => console.error(error));
    return () => controller.abort();
  }, [url]);
  return [items, busy];
};

export const List: FC<Props> = ({ url, children, onSelect }) => {
  const [items, busy] = useItems(url);
  const open = useMemo(() => items.filter((item) => !item.done), [items]);
  if (busy) return <p className="busy">Loading…</p>;
  return (
    <section aria-label="items">
      <h2>{open.length > 0 ? `${open.length} open` : 'all done'}</h2>
      <ul>
        {items.map(({ id, title, ...rest }) => (
          <li key={id} onClick={() => onSelect?.({ id, title, ...rest })}>{title}</li>
        ))}
      </ul>
      {children ?? <></>}
    </section>
  );
};
