/** Records in one file, for Node: written whole, flushed, and renamed over the old file. */

import { open, readFile, rename } from "node:fs/promises";
import { StorageError } from "../errors";
import { MemoryStore, type Table } from "./store";

type Content = Record<string, Record<string, unknown>>;

/** The account of a device in Node; one process at a time may use a file. */
export class FileStore extends MemoryStore {
  private constructor(private readonly path: string) {
    super();
  }

  /** Open a file, which need not exist; raise StorageError if it cannot be read. */
  static async open(path: string): Promise<FileStore> {
    const store = new FileStore(path);
    try {
      const content: Content = JSON.parse(await readFile(path, "utf8"));
      for (const [table, records] of Object.entries(content)) {
        for (const [key, value] of Object.entries(records)) {
          await MemoryStore.prototype.put.call(store, table as Table, key, value);
        }
      }
    } catch (error) {
      const isNew = error instanceof Error && "code" in error && error.code === "ENOENT";
      if (!isNew) throw new StorageError("storage_failed", {}, { cause: error });
    }
    return store;
  }

  /** Write all records with the new one; memory follows only once the file is durable. */
  override async put(table: Table, key: string, value: unknown): Promise<void> {
    const content: Content = {};
    for (const [name, records] of this.tables) {
      content[name] = Object.fromEntries(
        [...records].map(([each, text]) => [each, JSON.parse(text)]),
      );
    }
    content[table] = { ...content[table], [key]: value };
    try {
      const file = await open(`${this.path}.new`, "w", 0o600);
      await file.writeFile(JSON.stringify(content));
      await file.sync();
      await file.close();
      await rename(`${this.path}.new`, this.path);
    } catch (error) {
      throw new StorageError("storage_failed", {}, { cause: error });
    }
    await super.put(table, key, value);
  }
}
