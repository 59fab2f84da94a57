/** Calls to the issuer of one-time tokens: user_agent/issuer_client.py. */

import type { Bytes } from "../bytes";
import { MODULUS_BYTES } from "../crypto/tokens";
import { type ConnectService, fixedField } from "./connect";

/** The interface of the issuer to a device. */
export interface Issuer {
  /** Fetch the blind signature of a blinded message; the same message may be sent again. */
  issue(keyId: Bytes, blinded: Bytes, credential: Bytes): Promise<Bytes>;
}

/** The issuer behind Connect. */
export class RemoteIssuer implements Issuer {
  constructor(private readonly service: ConnectService) {}

  async issue(keyId: Bytes, blinded: Bytes, credential: Bytes): Promise<Bytes> {
    const answer = await this.service.call("IssueToken", { keyId, blinded, credential });
    return fixedField(answer, "blindSignature", MODULUS_BYTES);
  }
}
