/** Calls to the shuffler and the issuer: their clients in user_agent/. Answers are not yet verified. */

import { type Bytes, fromInteger, splitEvery, toInteger } from "../bytes";
import { SIGNATURE_BYTES, type SignedTask } from "../crypto/signing";
import { MODULUS_BYTES } from "../crypto/tokens";
import { ProofError, WireError } from "../errors";
import { type BatchCommitment, type InclusionProof, MAX_BITS } from "../inclusion/proof";
import { MAX_NOTE_BYTES, SignedCheckpoint } from "../log/checkpoint";
import type { LoggedTask, LogProof } from "../log/device_log";
import { HASH_BYTES, MAX_SIZE, type Path } from "../log/merkle";
import { MAX_TASK_BYTES } from "../task/task";
import {
  bytesField,
  ConnectService,
  fixedField,
  type Message,
  messageField,
  wholeField,
} from "./connect";

const MAX_BUCKET_BYTES = 4 * 1024 * 1024;
const MAX_PATH = 128;

const SHUFFLER_SENTENCES = {
  "FetchTask NOT_FOUND": "unknown_task",
  "Submit ALREADY_EXISTS": "answered_elsewhere",
  "Submit FAILED_PRECONDITION": "batch_closed",
} as const;

export class Shuffler extends ConnectService {
  constructor(base: string) {
    super(base, "shuffledp.v1.Shuffler", "the shuffler", SHUFFLER_SENTENCES);
  }

  async fetchLoggedTask(digest: Bytes, logSize: bigint): Promise<LoggedTask> {
    const request = { taskDigest: digest, logSize: String(logSize) };
    const answer = await this.call("FetchTask", request);
    return { task: signedTask(answer), proof: logProof(answer) };
  }

  /** Return whether a task's batch collects answers. */
  async isCollecting(digest: Bytes): Promise<boolean> {
    const { state } = await this.call("GetBatchStatus", { taskDigest: digest });
    return state === "BATCH_STATE_COLLECTING";
  }

  /** Submit an envelope with a token, empty for none; return the receipt. */
  async submit(digest: Bytes, envelope: Bytes, token: Bytes): Promise<Bytes> {
    const request = { taskDigest: digest, envelope, ...(token.length > 0 && { token }) };
    const answer = await this.call("Submit", request);
    return bytesField(answer, "receipt", SIGNATURE_BYTES);
  }

  /** Fetch a batch's commitment, with one bucket if a prefix is given. */
  async inclusion(digest: Bytes, prefix: number | null): Promise<InclusionProof> {
    const place = prefix === null ? {} : { prefix: fromInteger(prefix, 4) };
    return inclusionProof(await this.call("GetInclusion", { taskDigest: digest, ...place }));
  }
}

const ISSUER_SENTENCES = {
  "IssueToken ALREADY_EXISTS": "answered_elsewhere",
  "IssueToken UNAUTHENTICATED": "unaccepted_credential",
} as const;

/** The issuer of one-time tokens. */
export class Issuer extends ConnectService {
  constructor(base: string) {
    super(base, "shuffledp.v1.Issuer", "the issuer", ISSUER_SENTENCES);
  }

  /** Fetch the blind signature of a blinded message; the same message may be sent again. */
  async issue(keyId: Bytes, blinded: Bytes, credential: Bytes): Promise<Bytes> {
    const answer = await this.call("IssueToken", { keyId, blinded, credential });
    return fixedField(answer, "blindSignature", MODULUS_BYTES);
  }
}

function signedTask(answer: Message): SignedTask {
  const task = messageField(answer, "task") ?? {};
  return {
    bytes: bytesField(task, "task", MAX_TASK_BYTES),
    signature: fixedField(task, "signature", SIGNATURE_BYTES),
  };
}

/** Parse a task's place in the log; raise ProofError if it is missing. */
export function logProof(answer: Message): LogProof {
  const proof = messageField(answer, "logProof");
  if (proof === null) throw new ProofError("no_log_proof");
  return {
    index: wholeField(proof, "index", MAX_SIZE),
    path: hashes(proof, "path"),
    checkpoint: SignedCheckpoint.parse(bytesField(proof, "checkpoint", MAX_NOTE_BYTES)),
    consistency: hashes(proof, "consistency"),
  };
}

function hashes(message: Message, name: string): Path {
  const bytes = bytesField(message, name, MAX_PATH * HASH_BYTES);
  if (bytes.length % HASH_BYTES) throw new WireError("bad_field", { name });
  return splitEvery(bytes, HASH_BYTES);
}

/** Parse a bucket's proof; without a prefix, bucket and path are empty. */
export function inclusionProof(answer: Message): InclusionProof {
  const commitment = commitmentOf(messageField(answer, "commitment") ?? {});
  const padded = bytesField(answer, "bucket", MAX_BUCKET_BYTES);
  const end = 4 + Number(toInteger(padded.slice(0, 4))) * HASH_BYTES;
  if (padded.length > 0 && end > padded.length)
    throw new WireError("bad_field", { name: "bucket" });
  const path = splitEvery(bytesField(answer, "path", MAX_BITS * HASH_BYTES), HASH_BYTES);
  return { commitment, bucket: padded.slice(4, end), path };
}

function commitmentOf(message: Message): BatchCommitment {
  return {
    taskDigest: fixedField(message, "taskDigest", HASH_BYTES),
    batchId: fixedField(message, "batchId", 16),
    leaves: wholeField(message, "nLeaves", 2n ** 64n - 1n),
    bits: Number(wholeField(message, "bits", BigInt(MAX_BITS))),
    root: fixedField(message, "root", HASH_BYTES),
    signature: fixedField(message, "signature", SIGNATURE_BYTES),
    salt: fixedField(message, "salt", HASH_BYTES),
  };
}
