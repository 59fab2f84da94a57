/** The device's storage: records by table and key, changed under one lock. */

import { StorageError } from "../errors";

const RECORDS = "records";

/** Records while the lock is held. A value is plain data; `put` is durable when it returns. */
export interface Records {
  get(key: string): Promise<unknown>;
  /** Return the values of all keys that begin with a prefix. */
  all(prefix: string): Promise<unknown[]>;
  put(key: string, value: unknown): Promise<void>;
  /** Remove a record; durable when it returns. */
  remove(key: string): Promise<void>;
}

/** Storage that other tabs, or calls, may share. */
export interface Store {
  /** Run `work` alone; `work` must not call `locked` of the same store again. */
  locked<T>(work: (records: Records) => Promise<T>): Promise<T>;
}

/** Records in memory, for tests and for people who accept that their account is forgotten. */
export class MemoryStore implements Store, Records {
  protected readonly records = new Map<string, unknown>();
  #last: Promise<unknown> = Promise.resolve();

  locked<T>(work: (records: Records) => Promise<T>): Promise<T> {
    const result = this.#last.then(() => work(this));
    this.#last = result.catch(() => undefined);
    return result;
  }

  async get(key: string): Promise<unknown> {
    return structuredClone(this.records.get(key));
  }

  async all(prefix: string): Promise<unknown[]> {
    const found = [...this.records].filter(([key]) => key.startsWith(prefix));
    return structuredClone(found.map(([, value]) => value));
  }

  async put(key: string, value: unknown): Promise<void> {
    this.records.set(key, structuredClone(value));
  }

  async remove(key: string): Promise<void> {
    this.records.delete(key);
  }
}

/**
 * Records in IndexedDB, under one lock of `navigator.locks` across the origin's tabs.
 *
 * A browser may evict or clear it; `isPersistent` tells whether the browser promised not to. Every
 * `put` is a transaction of its own, since a transaction commits at the first foreign await.
 */
export class IndexedDbStore implements Store, Records {
  isPersistent = false;

  private constructor(
    private readonly database: IDBDatabase,
    private readonly name: string,
  ) {}

  /** Open the store; raise StorageError if the browser has none. */
  static async open(name = "shuffledp"): Promise<IndexedDbStore> {
    if (!(globalThis.indexedDB && globalThis.navigator?.locks))
      throw new StorageError("no_storage");
    try {
      const opening = indexedDB.open(name, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(RECORDS);
      const database = await settled(opening);
      return new IndexedDbStore(database, name);
    } catch (error) {
      throw new StorageError("no_storage", {}, { cause: error });
    }
  }

  /** Ask the browser to keep the storage; some ask the person first, and wait for an answer. */
  async persist(): Promise<void> {
    this.isPersistent = (await navigator.storage?.persist?.()) ?? false;
  }

  async locked<T>(work: (records: Records) => Promise<T>): Promise<T> {
    return await navigator.locks.request(`${this.name} account`, () => work(this));
  }

  get(key: string): Promise<unknown> {
    return settled(this.database.transaction(RECORDS).objectStore(RECORDS).get(key));
  }

  all(prefix: string): Promise<unknown[]> {
    const range = IDBKeyRange.bound(prefix, `${prefix}\uffff`);
    return settled(this.database.transaction(RECORDS).objectStore(RECORDS).getAll(range));
  }

  put(key: string, value: unknown): Promise<void> {
    return this.#write((records) => records.put(value, key));
  }

  remove(key: string): Promise<void> {
    return this.#write((records) => records.delete(key));
  }

  #write(write: (records: IDBObjectStore) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const durable = { durability: "strict" } as const;
      const transaction = this.database.transaction(RECORDS, "readwrite", durable);
      write(transaction.objectStore(RECORDS));
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
