/** The device's storage: records by table and key, changed under one lock. */

import { StorageError } from "../errors";

export const TABLES = ["answers", "log", "device"] as const;
export type Table = (typeof TABLES)[number];

/** Records while the lock is held. A value is plain data; `put` is durable when it returns. */
export interface Records {
  get(table: Table, key: string): Promise<unknown>;
  all(table: Table): Promise<unknown[]>;
  put(table: Table, key: string, value: unknown): Promise<void>;
}

/** Storage that other tabs, or calls, may share. */
export interface Store {
  /** Run `work` alone; `work` must not call `locked` of the same store again. */
  locked<T>(work: (records: Records) => Promise<T>): Promise<T>;
}

/** Records in memory, for tests and for people who accept that their account is forgotten. */
export class MemoryStore implements Store {
  protected readonly tables = new Map<Table, Map<string, string>>();
  #last: Promise<unknown> = Promise.resolve();

  locked<T>(work: (records: Records) => Promise<T>): Promise<T> {
    const result = this.#last.then(() => work(this));
    this.#last = result.catch(() => undefined);
    return result;
  }

  async get(table: Table, key: string): Promise<unknown> {
    const value = this.tables.get(table)?.get(key);
    return value === undefined ? undefined : JSON.parse(value);
  }

  async all(table: Table): Promise<unknown[]> {
    return [...(this.tables.get(table)?.values() ?? [])].map((value) => JSON.parse(value));
  }

  async put(table: Table, key: string, value: unknown): Promise<void> {
    const records = this.tables.get(table) ?? new Map<string, string>();
    this.tables.set(table, records.set(key, JSON.stringify(value)));
  }
}

/**
 * Records in IndexedDB, under one lock of `navigator.locks` across the origin's tabs.
 *
 * A browser may evict or clear it; `isPersistent` tells whether the browser promised not to. Every
 * `put` is a transaction of its own, since a transaction commits at the first foreign await.
 */
export class IndexedDbStore implements Store {
  private constructor(
    private readonly database: IDBDatabase,
    private readonly name: string,
    readonly isPersistent: boolean,
  ) {}

  /** Open the store, and ask for persistence; raise StorageError if the browser has none. */
  static async open(name = "shuffledp"): Promise<IndexedDbStore> {
    if (!(globalThis.indexedDB && globalThis.navigator?.locks))
      throw new StorageError("no_storage");
    try {
      const opening = indexedDB.open(name, 1);
      opening.onupgradeneeded = () => {
        for (const table of TABLES) opening.result.createObjectStore(table);
      };
      const database = await settled(opening);
      const isPersistent = (await navigator.storage?.persist?.()) ?? false;
      return new IndexedDbStore(database, name, isPersistent);
    } catch (error) {
      throw new StorageError("no_storage", {}, { cause: error });
    }
  }

  async locked<T>(work: (records: Records) => Promise<T>): Promise<T> {
    return await navigator.locks.request(`${this.name} account`, () => work(this));
  }

  get(table: Table, key: string): Promise<unknown> {
    return settled(this.database.transaction(table).objectStore(table).get(key));
  }

  all(table: Table): Promise<unknown[]> {
    return settled(this.database.transaction(table).objectStore(table).getAll());
  }

  put(table: Table, key: string, value: unknown): Promise<void> {
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(table, "readwrite", { durability: "strict" });
      transaction.objectStore(table).put(value, key);
      transaction.oncomplete = () => resolve();
      transaction.onabort = () =>
        reject(new StorageError("storage_failed", {}, { cause: transaction.error }));
    });
  }
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () =>
      reject(new StorageError("storage_failed", {}, { cause: request.error }));
  });
}
