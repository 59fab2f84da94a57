/** Elements of the page. No text is ever parsed as HTML. */

type Names = HTMLElementTagNameMap;
type Child = Node | string | null;
export type Row = readonly [string, string];

/** Make an element with these properties and children; a child that is null is left out. */
export function element<N extends keyof Names>(
  name: N,
  properties: Partial<Names[N]> = {},
  ...children: readonly Child[]
): Names[N] {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

export function byId(id: string): HTMLElement {
  return document.getElementById(id) as HTMLElement;
}

/** Make a paragraph of a text; none of an empty one. */
export function paragraph(text: string, className = ""): HTMLElement | null {
  return text ? element("p", { className, dir: "auto" }, text) : null;
}

/** Make a section with a heading. */
export function section(title: string, ...children: readonly Child[]): HTMLElement {
  return element("section", {}, element("h2", {}, title), ...children);
}

/** Make a list of terms and their values; rows without a value are left out. */
export function facts(rows: readonly Row[], className = "facts"): HTMLElement {
  const shown = rows.filter(([, value]) => value);
  const row = ([term, value]: Row) =>
    element("div", {}, element("dt", {}, term), element("dd", { dir: "auto" }, value));
  return element("dl", { className }, ...shown.map(row));
}
