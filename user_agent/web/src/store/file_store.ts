/** Records in one file, for Node: written whole, flushed, and renamed over the old file. */

import { open, readFile, rename } from "node:fs/promises";
import { StorageError } from "../errors";
import { MemoryStore } from "./store";

/** Infinity, which JSON has no number for; no other text of a record is this one. */
const INFINITE = "Infinity";
const write = (_: string, value: unknown) =>
  value === Number.POSITIVE_INFINITY ? INFINITE : value;
const read = (_: string, value: unknown) => (value === INFINITE ? Number.POSITIVE_INFINITY : value);

/** The account of a device in Node; one process at a time may use a file. */
export class FileStore extends MemoryStore {
  private constructor(private readonly path: string) {
    super();
  }

  /** Open a file, which need not exist; raise StorageError if it cannot be read. */
  static async open(path: string): Promise<FileStore> {
    const store = new FileStore(path);
    try {
      const content: object = JSON.parse(await readFile(path, "utf8"), read);
      for (const [key, value] of Object.entries(content)) store.records.set(key, value);
    } catch (error) {
      const isNew = error instanceof Error && "code" in error && error.code === "ENOENT";
      if (!isNew) throw new StorageError("storage_failed", {}, { cause: error });
    }
    return store;
  }

  /** Write all records with the new one; memory follows only once the file is durable. */
  override async put(key: string, value: unknown): Promise<void> {
    const content = Object.fromEntries([...this.records, [key, value]]);
    try {
      const file = await open(`${this.path}.new`, "w", 0o600);
      await file.writeFile(JSON.stringify(content, write));
      await file.sync();
      await file.close();
      await rename(`${this.path}.new`, this.path);
    } catch (error) {
      throw new StorageError("storage_failed", {}, { cause: error });
    }
    await super.put(key, value);
  }
}
