/** The device of shuffledp for browsers and Node. */

export { Account, type Answer, type Claim, type Inclusion, type State } from "./account";
export { fromBase64, fromHex, toBase64, toHex } from "./bytes";
export { Identity } from "./crypto/signing";
export { type CheckedTask, Device, type DeviceSettings, type Outcome } from "./device";
export { ShuffleDpError } from "./errors";
export { NoteKey } from "./log/checkpoint";
export { type LogEvidence, WitnessPolicy } from "./log/device_log";
export { centralTotal, coalitionTotal, localTotal, type Policy } from "./policy";
export type { Uniform } from "./random";
export { IndexedDbStore, MemoryStore, type Records, type Store } from "./store/store";
export { parseTask, type Task } from "./task/task";
export type { Value } from "./values";
