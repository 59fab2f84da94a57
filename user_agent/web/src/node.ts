/** What only Node offers. */

export { FileStore } from "./store/file_store";
