/** The sentences of all errors, a file of its own in the bundle. */

export { default as messages } from "./messages.json";
