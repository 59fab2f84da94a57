/** Tables of one or two attributes, without noise: common/mechanisms/tables.py. */

import type { Attribute } from "../task/domain";
import { ViewMechanism } from "./views";

/** True cells of each table; cells count the last attribute fastest. */
export class Tables extends ViewMechanism {
  constructor(
    sizes: readonly number[],
    private readonly attributes: readonly Attribute[],
    private readonly tables: readonly (readonly number[])[],
  ) {
    super(sizes);
  }

  protected encode(numbers: readonly number[]): readonly number[] {
    return this.tables.map((table) =>
      table.reduce(
        (cell, place) => cell * (this.attributes[place]?.size ?? 0) + (numbers[place] ?? 0),
        0,
      ),
    );
  }
}
